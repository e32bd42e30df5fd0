// SPDX-License-Identifier: Apache-2.0
#include "base/work_progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <utility>

#include "base/byte_size.h"
#include "base/log.h"

namespace wideep::base {
namespace {

constexpr const char* kErase = "\r\033[K";  // to the start of the line, then erase to its end
constexpr int kBarWidth = 24;

// Rounded up, so that nothing takes 0 s.
std::string duration(double seconds) {
  const auto all = static_cast<int64_t>(std::ceil(seconds));
  if (all < 120) return fmt::format("{} s", all);
  if (all < 2 * 3600) return fmt::format("{} min {} s", all / 60, all % 60);
  return fmt::format("{} h {} min", all / 3600, all % 3600 / 60);
}

// Of the terminal; many if it does not say.
size_t columns_of(int fd) {
  constexpr size_t kMany = 1000;
  winsize size = {};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : kMany;
}

int percent(uint64_t done, uint64_t all) {
  return static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(all));
}

}  // namespace

WorkProgress::WorkProgress(std::string what, std::string unit)
    : WorkProgress(std::move(what), std::move(unit), STDERR_FILENO,
                   [](const std::string& line) { log::info("{}", line); }) {}

WorkProgress::WorkProgress(std::string what, std::string unit, int fd, Line line)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      fd_(::isatty(fd) == 1 ? fd : -1),
      line_(std::move(line)) {}

void WorkProgress::show(uint64_t done, uint64_t all, Clock::time_point now) {
  if (is_over_ || all == 0 || done > all) return;
  if (!std::exchange(has_begun_, true)) {
    start_ = now;
    first_done_ = done;
    next_ = now + (fd_ >= 0 ? Clock::duration(kInterval) : Clock::duration(kFirstLine));
  }
  is_over_ = done == all;
  if (is_over_ && fd_ >= 0) return clear();
  const Figures found = figures(done, all, now);
  if (is_over_) {
    if (has_lines_) line_(fmt::format("{}: {} in {}", what_, amount(all), duration(found.seconds)));
    return;
  }
  if (now < next_) return;
  if (fd_ >= 0) {
    next_ = now + kInterval;
    is_shown_ = true;
    return write(kErase + bar(found));
  }
  next_ = now + kLines;
  has_lines_ = true;
  line_(text(found));
}

void WorkProgress::clear() {
  if (std::exchange(is_shown_, false)) write(kErase);
}

WorkProgress::Figures WorkProgress::figures(uint64_t done, uint64_t all,
                                            Clock::time_point now) const {
  Figures found{.done = done, .all = all};
  found.seconds = std::chrono::duration<double>(now - start_).count();
  if (found.seconds > 0) found.rate = static_cast<double>(done - first_done_) / found.seconds;
  return found;
}

std::string WorkProgress::amount(uint64_t value) const {
  return unit_.empty() ? byte_size(value) : fmt::format("{} {}", value, unit_);
}

std::string WorkProgress::bar(const Figures& now) const {
  const int share = percent(now.done, now.all);
  const int full = share * kBarWidth / 100;
  std::string numbers =
      fmt::format("{:3} %  {} of {}", share,
                  unit_.empty() ? amount(now.done) : std::to_string(now.done), amount(now.all));
  if (now.rate > 0.0) {
    if (unit_.empty()) numbers += fmt::format("  {}/s", amount(static_cast<uint64_t>(now.rate)));
    numbers +=
        fmt::format("  {} left", duration(static_cast<double>(now.all - now.done) / now.rate));
  }
  // A line that goes on in the next row could not be written over.
  const size_t most = columns_of(fd_) - 1;
  std::string line =
      fmt::format("{}  [{:#<{}}{:.<{}}] {}", what_, "", full, "", kBarWidth - full, numbers);
  if (line.size() > most) line = fmt::format("{}  {}", what_, numbers);
  return line.substr(0, most);
}

std::string WorkProgress::text(const Figures& now) const {
  std::string line = fmt::format("{}: {} %, {} of {} in {}", what_, percent(now.done, now.all),
                                 unit_.empty() ? amount(now.done) : std::to_string(now.done),
                                 amount(now.all), duration(now.seconds));
  if (now.rate <= 0.0) return line;
  if (unit_.empty()) line += fmt::format(", {}/s", amount(static_cast<uint64_t>(now.rate)));
  return line + fmt::format(", about {} left",
                            duration(static_cast<double>(now.all - now.done) / now.rate));
}

// The result is ignored: progress is a convenience, and an error must not end the run.
void WorkProgress::write(const std::string& text) const {
  [[maybe_unused]] const ssize_t written = ::write(fd_, text.data(), text.size());
}

}  // namespace wideep::base
