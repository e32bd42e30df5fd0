// SPDX-License-Identifier: Apache-2.0
//
// When a place that does not work is asked again: after 1 s, 2 s, … at most a minute.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>

namespace wideep::store {

class Outage {
 public:
  static constexpr double kFirstWait = 1.0, kMaxWait = 60.0;  // seconds

  // now: seconds of a steady clock.
  void failed(double now) {
    wait_ = wait_ == 0.0 ? kFirstWait : std::min(2.0 * wait_, kMaxWait);
    retry_at_ = now + wait_;
  }
  void worked() { wait_ = 0.0; }
  bool is_out() const { return wait_ > 0.0; }
  // It works, or it is time to see whether it does.
  bool may_try(double now) const { return !is_out() || now >= retry_at_; }
  double wait() const { return wait_; }

 private:
  double wait_ = 0.0;  // 0: it works
  double retry_at_ = 0.0;
};

}  // namespace wideep::store
