// SPDX-License-Identifier: Apache-2.0
//
// Passes the engine's counts to the balancer's thread without waiting and without loss. The engine
// adds to its own sums. When the balancer has emptied the mailbox, the engine exchanges its sums
// for the empty ones. A late balancer gets the sums of several iterations at once.
//
// Thread safety: one thread calls the engine's part, one the balancer's.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace wideep::online {

// The counts of all ranks, summed over consecutive iterations.
struct GroupLoads {
  int64_t first_iteration = 0;
  int64_t num_iterations = 0;
  std::vector<int64_t> tokens;  // [num_layers, num_experts] tokens that chose the expert
  // What the first rank's experts have computed, over all layers: rows, and their processor time.
  int64_t first_rank_rows = 0;
  int64_t first_rank_ns = 0;
};

class LoadMailbox {
 public:
  LoadMailbox(int num_layers, int num_experts)
      : num_experts_(static_cast<size_t>(num_experts)),
        filling_{.tokens = std::vector<int64_t>(static_cast<size_t>(num_layers) * num_experts_)},
        handed_(filling_) {}

  // ---- the engine's thread: no lock, no system call, no allocation ----

  // counts: [num_experts], of all ranks.
  void add(int layer, std::span<const int32_t> counts) {
    int64_t* sums = filling_.tokens.data() + static_cast<size_t>(layer) * num_experts_;
    for (size_t expert = 0; expert < num_experts_; ++expert) sums[expert] += counts[expert];
  }
  // rows, ns: of this rank's experts, as GroupLoads has them.
  void end_iteration(int64_t iteration, int64_t rows, int64_t ns);

  // ---- the balancer's thread ----

  // Null if there is nothing new. Valid until done().
  const GroupLoads* look() const {
    return full_.load(std::memory_order_acquire) ? &handed_ : nullptr;
  }
  void done();

 private:
  size_t num_experts_;
  GroupLoads filling_;  // the engine's
  GroupLoads handed_;   // the balancer's while full_; else the engine's, and all zero
  std::atomic<bool> full_{false};
};

}  // namespace wideep::online
