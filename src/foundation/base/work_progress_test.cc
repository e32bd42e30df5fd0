// SPDX-License-Identifier: Apache-2.0
//
// The figures are worked out by hand. A failure is a log full of lines, or a wrong time.
#include "base/work_progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

namespace wideep::base {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kMiB = 1 << 20;

class WorkProgressTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe2(pipe_.data(), O_NONBLOCK), 0); }
  void TearDown() override {
    for (const int fd : pipe_) ::close(fd);
  }
  WorkProgress::Line lines() {
    return [this](const std::string& line) { lines_.push_back(line); };
  }

  std::array<int, 2> pipe_;
  std::vector<std::string> lines_;
  const WorkProgress::Clock::time_point start_ = WorkProgress::Clock::now();
};

TEST_F(WorkProgressTest, FilesGetALineNowAndThen) {
  WorkProgress progress("loading weights", "", pipe_[1], lines());
  progress.show(0, 1000 * kMiB, start_);
  progress.show(100 * kMiB, 1000 * kMiB, start_ + 1900ms);
  EXPECT_THAT(lines_, IsEmpty());
  progress.show(200 * kMiB, 1000 * kMiB, start_ + 2s);  // 100 MiB/s: 8 s for the rest
  progress.show(300 * kMiB, 1000 * kMiB, start_ + 6900ms);
  progress.show(500 * kMiB, 1000 * kMiB, start_ + 10s);
  progress.show(1000 * kMiB, 1000 * kMiB, start_ + 11s);
  progress.show(1100 * kMiB, 1000 * kMiB, start_ + 50s);  // a rank that is started again
  EXPECT_THAT(lines_,
              ElementsAre("loading weights: 20 %, 200.0 MiB of 1000.0 MiB in 2 s, 100.0 MiB/s, "
                          "about 8 s left",
                          "loading weights: 50 %, 500.0 MiB of 1000.0 MiB in 10 s, 50.0 MiB/s, "
                          "about 10 s left",
                          "loading weights: 1000.0 MiB in 11 s"));
}

TEST_F(WorkProgressTest, ShortWorkIsNotMentioned) {
  WorkProgress progress("quantising", "tensors", pipe_[1], lines());
  progress.show(1, 2, start_);
  progress.show(2, 2, start_ + 1s);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(WorkProgressTest, OtherUnitsHaveNoRateAndLongTimesAreHoursAndMinutes) {
  WorkProgress progress("quantising", "tensors", pipe_[1], lines());
  progress.show(0, 7201, start_);
  progress.show(1, 7201, start_ + 2s);    // 2 s for each of 7200
  progress.show(5, 7201, start_ + 300s);  // 60 s for each of 7196
  EXPECT_THAT(lines_,
              ElementsAre("quantising: 0 %, 1 of 7201 tensors in 2 s, about 4 h 0 min left",
                          "quantising: 0 %, 5 of 7201 tensors in 5 min 0 s, about 119 h 56 min "
                          "left"));
}

TEST_F(WorkProgressTest, TerminalsHaveABar) {
  const int outer = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  if (outer < 0 || ::grantpt(outer) != 0 || ::unlockpt(outer) != 0) {
    GTEST_SKIP() << "no pseudo terminal can be opened here";
  }
  const int inner = ::open(::ptsname(outer), O_RDWR | O_NOCTTY);
  const auto read_all = [outer] {
    std::array<char, 4096> text;
    const ssize_t size = ::read(outer, text.data(), text.size());
    return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "";
  };
  WorkProgress progress("loading weights", "", inner, lines());
  progress.show(0, 1000 * kMiB, start_);
  progress.show(10 * kMiB, 1000 * kMiB, start_ + 50ms);
  EXPECT_EQ(read_all(), "");
  progress.show(500 * kMiB, 1000 * kMiB, start_ + 5s);
  EXPECT_EQ(read_all(),
            "\r\033[Kloading weights  [############............]  50 %  500.0 MiB of 1000.0 MiB  "
            "100.0 MiB/s  5 s left");
  progress.clear();
  EXPECT_EQ(read_all(), "\r\033[K");
  // In one row, whatever its width: else each time would leave a row behind.
  const auto shown_in = [&](unsigned short columns, WorkProgress::Clock::duration later) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::ioctl(inner, TIOCSWINSZ, &size), 0);
    progress.show(500 * kMiB, 1000 * kMiB, start_ + later);
    return read_all();
  };
  EXPECT_EQ(shown_in(80, 6s),
            "\r\033[Kloading weights   50 %  500.0 MiB of 1000.0 MiB  83.3 MiB/s  6 s left");
  EXPECT_EQ(shown_in(20, 7s), "\r\033[Kloading weights   5");
  progress.clear();
  EXPECT_EQ(read_all(), "\r\033[K");
  progress.clear();
  progress.show(1000 * kMiB, 1000 * kMiB, start_ + 9s);
  EXPECT_EQ(read_all(), "");
  EXPECT_THAT(lines_, IsEmpty());
  ::close(inner);
  ::close(outer);
}

}  // namespace
}  // namespace wideep::base
