// SPDX-License-Identifier: Apache-2.0
//
// What a person is shown while a run goes on. Called on the thread that prepares the run and pulls
// its events; where a launcher has started the ranks, in the process of rank 0.
#pragma once

#include <cstdint>
#include <string>

#include "online/online_balancer.h"

namespace wideep::run {

// Shows nothing: whoever shows something overrides what it shows.
class RunView {
 public:
  virtual ~RunView() = default;
  virtual void plan(const std::string& /*lines*/) {}            // what runs, and what it costs
  virtual void loading(uint64_t /*done*/, uint64_t /*all*/) {}  // bytes of weights
  virtual void line(const std::string& /*text*/) {
  }  // what goes on: where it listens, that it stops
  virtual void rebalanced(const online::Rebalance& /*rebalance*/) {}
};

// Bytes of weights as they are read: by the parent, then by the ranks.
class LoadingProgress {
 public:
  // all: 0: weights are made up, and nothing is shown.
  LoadingProgress(RunView& view, uint64_t all) : view_(view), all_(all) {}
  void add(uint64_t bytes) {
    done_ += bytes;
    if (all_ > 0) view_.loading(done_, all_);
  }

 private:
  RunView& view_;
  uint64_t all_;
  uint64_t done_ = 0;
};

}  // namespace wideep::run
