// SPDX-License-Identifier: Apache-2.0
//
// Whether an iteration of the ranks is overdue: they have requests, but no iteration has ended for
// far longer than the ones before took. A rank that hangs shows so long before its peers run into
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

  // An iteration has ended that took `seconds`.
  void ended(double now, double seconds) {
    last_end_ = now;
    longest_ = std::max(longest_, seconds);
  }
  // For how long no iteration has ended, if that is too long. since: when the ranks have begun to
  // have requests (Backend::computes_since).
  std::optional<double> overdue(double now, double since) const {
    const double silent = now - std::max(last_end_, since);
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
  double last_end_ = 0.0;
};

}  // namespace wideep::server
