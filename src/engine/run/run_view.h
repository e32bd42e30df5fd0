// SPDX-License-Identifier: Apache-2.0
//
// The output for people while a run goes on.
//
// Thread safety: called on the thread that prepares the run and pulls its events, except loading(),
// which loading threads may call, one at a time; if a launcher has started the ranks, in the
// process of rank 0.
#pragma once

#include <cstdint>
#include <string>

#include "online/online_balancer.h"

namespace wideep::run {

// The base class shows nothing.
class RunView {
 public:
  virtual ~RunView() = default;
  virtual void plan(const std::string& /*lines*/) {}            // plan_text()
  virtual void loading(uint64_t /*done*/, uint64_t /*all*/) {}  // bytes of weights
  virtual void line(const std::string& /*text*/) {}             // such as the address, or the stop
  virtual void rebalanced(const online::Rebalance& /*rebalance*/) {}
};

// Sums the bytes of weights that the parent and then the ranks have read.
class LoadingProgress {
 public:
  // all: bytes to read; 0 for random weights: nothing is shown.
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
