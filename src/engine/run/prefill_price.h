// SPDX-License-Identifier: Apache-2.0
//
// What computing a prompt takes, and how long iterations are, as the iterations of a run show.
//
// The price is the time of iterations with prompt tokens over their number, where late iterations
// count more. An iteration that also generates is charged only with what it takes beyond one that
// only generates. A price ages: when prompts are fetched instead of computed, nothing measures it,
// so after a minute it doubles with every minute, until it is as good as unknown.
//
// Thread safety: none. Times are seconds of one steady clock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "run/event.h"

namespace wideep::run {

class PrefillPrice {
 public:
  void add(const Iteration& iteration, double now);
  // Of a prompt token, for the rank or the ranks that compute the request. nullopt: not measured
  // yet, or too long ago; then computing counts as dear.
  std::optional<double> seconds_per_token(double now) const;
  // Of an iteration without prompt tokens, of late; nullopt: there was none.
  std::optional<double> decode_seconds() const { return decode_seconds_; }

 private:
  std::optional<double> decode_seconds_;  // as decode_seconds()
  double seconds_ = 0.0, tokens_ = 0.0;   // sums of iterations with prompts
  double measured_at_ = 0.0;
};

// How long ranks may take until they hear a command: they read commands between iterations.
class IterationPace {
 public:
  // Whether ranks have requests to compute.
  void set_busy(bool busy, double now);
  void add(const Iteration& iteration, double now);
  // The longest of the last iterations and, if that is longer, of what the running one has taken so
  // far; at most a minute, so that nobody waits for an iteration that never ends.
  double longest(double now) const;

 private:
  std::array<double, 16> last_ = {};
  size_t next_ = 0;
  std::optional<double> running_since_;
};

}  // namespace wideep::run
