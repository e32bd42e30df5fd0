// SPDX-License-Identifier: Apache-2.0
//
// Holds the first requests of a server back until so many wait, so that a measurement begins
// saturated (TLLM_BENCHMARK_REQ_QUEUES_SIZE). Then it is open for good. It opens before if none has
// come for a while: clients may have fewer requests under way than it waits for.
//
// Ranks know nothing of it: held requests are not submitted.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "schedule/request.h"

namespace wideep::server {

class StartQueue {
 public:
  // wanted: requests to wait for; 0 or 1: it is open from the start.
  explicit StartQueue(int wanted) : wanted_(static_cast<size_t>(std::max(wanted, 0))) {}

  bool is_open() const { return is_open_ || wanted_ <= 1; }
  bool is_full() const { return held_.size() >= wanted_; }
  size_t size() const { return held_.size(); }
  // now: seconds of any steady clock. REQUIRES: !is_open().
  void add(engine::Request request, double now) {
    held_.push_back(std::move(request));
    last_ = now;
  }
  // Returns whether it was held. It does not count any more.
  bool cancel(int index) {
    return std::erase_if(held_, [&](const auto& each) { return each.index == index; }) > 0;
  }
  // Whether requests are held and none has come for `seconds`.
  bool is_quiet(double now, double seconds) const {
    return !held_.empty() && now - last_ >= seconds;
  }
  // Opens it; returns what was held, in the order in which it came.
  std::vector<engine::Request> open() {
    is_open_ = true;
    return std::exchange(held_, {});
  }

 private:
  size_t wanted_;
  bool is_open_ = false;
  double last_ = 0.0;  // when the last one came
  std::vector<engine::Request> held_;
};

}  // namespace wideep::server
