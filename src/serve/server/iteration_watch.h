// SPDX-License-Identifier: Apache-2.0
//
// Whether an iteration of the ranks is overdue: requests run, but no iteration has ended for far
// longer than the ones before took. A rank that hangs shows so long before its peers run into
// --timeout and the run fails.
//
// Thread safety: the serving thread. Times are seconds of any steady clock.
#pragma once

#include <algorithm>
#include <optional>

namespace wideep::server {

class IterationWatch {
 public:
  // timeout: after which a rank fails that waits for another one.
  explicit IterationWatch(double timeout) : timeout_(timeout) {}

  // The first request has come after none ran.
  void began(double now) { last_progress_ = now; }
  // An iteration has ended that took `seconds`.
  void ended(double now, double seconds) {
    last_progress_ = now;
    longest_ = std::max(longest_, seconds);
  }
  // For how long no iteration has ended, if that is too long. REQUIRES: requests run.
  std::optional<double> overdue(double now) const {
    const double silent = now - last_progress_;
    return silent > limit() ? std::optional(silent) : std::nullopt;
  }

 private:
  // Ten times the longest iteration so far, which had a whole chunk of prompts if there was one. At
  // least 2 s, so that a busy machine is no hung rank; at most half the timeout, which also holds
  // before the first iteration.
  double limit() const {
    constexpr double kMin = 2.0, kTimes = 10.0;
    const double max = timeout_ / 2;
    return longest_ == 0.0 ? max : std::min(std::max(kMin, kTimes * longest_), max);
  }

  double timeout_;
  double longest_ = 0.0;  // iteration
  double last_progress_ = 0.0;
};

}  // namespace wideep::server
