// SPDX-License-Identifier: Apache-2.0
//
// How much of the weights has been read, for the service manager. Each text is also a sign that the
// start goes on: a manager gives it two more minutes (base::ServiceNotifier::loading), and a percent
// of a large model may take longer than that to read.
//
// Thread safety: one thread at a time.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace wideep::server {

class LoadingText {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kLongest{30};  // between two texts while bytes come

  // all: bytes to read; 0: nobody knows.
  explicit LoadingText(uint64_t all) : all_(all) {}

  // bytes: more that were read. Empty: it says what it has just said.
  std::string add(uint64_t bytes, Clock::time_point now = Clock::now()) {
    done_ += bytes;
    const uint64_t percent = all_ == 0 ? 0 : std::min<uint64_t>(100, done_ * 100 / all_);
    if (std::exchange(percent_, percent) == percent && now < next_) return "";
    next_ = now + kLongest;
    return fmt::format("loading weights {} %", percent);
  }

 private:
  uint64_t all_, done_ = 0, percent_ = 0;
  Clock::time_point next_;
};

}  // namespace wideep::server
