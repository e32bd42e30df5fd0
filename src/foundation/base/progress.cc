// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace wideep::base {
namespace {

constexpr const char* kErase = "\r\033[K";  // to the start of the line, then erase to its end

}  // namespace

Progress::Progress(std::string what, int64_t total, std::string unit, int fd)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      fd_(::isatty(fd) == 1 ? fd : -1),
      next_(Clock::now() + kQuiet) {}

Progress::~Progress() {
  if (shown_) write(kErase);
}

void Progress::step(Clock::time_point now) {
  ++done_;
  if (fd_ < 0 || now < next_) return;
  write(fmt::format("{}{}: {} of {} {}", kErase, what_, done_, total_, unit_));
  shown_ = true;
  next_ = now + kInterval;
}

// The result is ignored: progress is a convenience, and an error must not end the run.
void Progress::write(const std::string& text) const {
  [[maybe_unused]] const ssize_t written = ::write(fd_, text.data(), text.size());
}

}  // namespace wideep::base
