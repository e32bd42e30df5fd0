// SPDX-License-Identifier: Apache-2.0
#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

namespace wideep::base {
namespace {

constexpr const char* kWipe = "\r\033[K";  // back to the start of the line, and nothing after it

}  // namespace

Progress::Progress(std::string what, int64_t total, std::string unit, int fd)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      fd_(::isatty(fd) == 1 ? fd : -1),
      next_(Clock::now() + kQuiet) {}

Progress::~Progress() {
  if (shown_) write(kWipe);
}

void Progress::step(Clock::time_point now) {
  ++done_;
  if (fd_ < 0 || now < next_) return;
  write(fmt::format("{}{}: {} of {} {}", kWipe, what_, done_, total_, unit_));
  shown_ = true;
  next_ = now + kInterval;
}

// A failed write to a terminal has nowhere to go.
void Progress::write(const std::string& text) const {
  [[maybe_unused]] const ssize_t written = ::write(fd_, text.data(), text.size());
}

}  // namespace wideep::base
