// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>

namespace wideep::base {
namespace {

using namespace std::chrono_literals;

// A pseudo-terminal, whose other end gives back what is written to it.
class Terminal {
 public:
  Terminal() : outer_(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
    if (outer_ < 0 || ::grantpt(outer_) != 0 || ::unlockpt(outer_) != 0) return;
    inner_ = ::open(::ptsname(outer_), O_RDWR | O_NOCTTY);
  }
  ~Terminal() {
    if (inner_ >= 0) ::close(inner_);
    if (outer_ >= 0) ::close(outer_);
  }

  int fd() const { return inner_; }
  std::string read() const {
    std::array<char, 4096> text;
    const ssize_t size = ::read(outer_, text.data(), text.size());
    return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "";
  }

 private:
  int outer_;
  int inner_ = -1;
};

TEST(Progress, WritesOnATerminalAfterASecondAndErasesTheLine) {
  const Terminal terminal;
  if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo terminal can be opened here";
  const auto start = Progress::Clock::now();
  {
    Progress progress("planning", 9, "layers", terminal.fd());
    progress.step(start + 500ms);
    EXPECT_EQ(terminal.read(), "");
    progress.step(start + 2s);
    EXPECT_EQ(terminal.read(), "\r\033[Kplanning: 2 of 9 layers");
    progress.step(start + 2s + 50ms);
    EXPECT_EQ(terminal.read(), "");
    progress.step(start + 2s + 150ms);
    EXPECT_EQ(terminal.read(), "\r\033[Kplanning: 4 of 9 layers");
  }
  EXPECT_EQ(terminal.read(), "\r\033[K");
}

TEST(Progress, ShortRunsAndOtherFilesGetNoOutput) {
  const Terminal terminal;
  if (terminal.fd() < 0) GTEST_SKIP() << "no pseudo terminal can be opened here";
  Progress("planning", 1, "layers", terminal.fd()).step();
  EXPECT_EQ(terminal.read(), "");

  std::array<int, 2> pipe;
  ASSERT_EQ(::pipe2(pipe.data(), O_NONBLOCK), 0);
  Progress("planning", 1, "layers", pipe[1]).step(Progress::Clock::now() + 1h);
  char byte;
  EXPECT_EQ(::read(pipe[0], &byte, 1), -1);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

}  // namespace
}  // namespace wideep::base
