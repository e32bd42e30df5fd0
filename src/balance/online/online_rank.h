// SPDX-License-Identifier: Apache-2.0
//
// Online balancing for an engine: one rank's part, called between iterations, and its background
// threads. It does not depend on the model or on requests.
//
//   // before the ranks are forked
//   WIDEEP_TRY_ASSIGN(auto board, UpdateBoard::create({num_ranks, num_layers, num_slots}));
//   // in each rank
//   OnlineRank online(setup, rank);
//   for each iteration:
//     online.write_states(words);  ... all ranks exchange their words ...
//     online.apply(words_of_all, iteration, [&](const PublishedLayer& layer) { ... switch ... });
//     ... run; online.add_counts(layer, counts) for each MoE layer ...
//     online.end_iteration(iteration, rows, ns);
//
// Thread safety: one thread. None of these calls waits, locks, allocates or makes a system call.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "online/online_balancer.h"
#include "online/weight_updater.h"

namespace wideep::online {

// The objects and settings that the ranks of a group share.
struct OnlineSetup {
  UpdateBoard& board;
  const weights::HostPool& pool;
  const balance::ModelPlacement& placement;
  BalancerOptions options;
  UpdatePolicy& policy;  // rank 0's balancer uses it
  // On a background thread of rank 0:
  std::function<void(const Rebalance&)> on_rebalance;
  std::function<void(const TrustChange&)> on_trust_change = {};
  CopyHook on_copy;                   // for tests
  const BoardRelay* relay = nullptr;  // this rank's; null on one node
};

class OnlineRank {
 public:
  OnlineRank(const OnlineSetup& setup, int rank);
  // Ends the background threads; no other call may follow.
  void stop();
  int first_slot() const { return updater_.first_slot(); }  // of this rank

  void write_states(transport::AgreedWords& words) const { updater_.write_states(words); }

  // switch_layer: as WeightUpdater::apply.
  template <typename SwitchLayer>
  void apply(std::span<const transport::AgreedWords> of_ranks, int64_t iteration,
             SwitchLayer switch_layer) {
    updater_.apply(decide(of_ranks), iteration, switch_layer);
  }

  // layer: position among the MoE layers. counts: [num_experts] tokens of all ranks.
  void add_counts(int layer, std::span<const int32_t> counts) {
    if (balancer_) balancer_->mailbox().add(layer, counts);
  }
  // rows, ns: what this rank's experts have computed in it, over all layers, and the processor time
  // of that.
  void end_iteration(int64_t iteration, int64_t rows, int64_t ns) {
    if (balancer_) balancer_->mailbox().end_iteration(iteration, rows, ns);
  }

 private:
  WeightUpdater updater_;
  std::optional<OnlineBalancer> balancer_;  // rank 0's
};

}  // namespace wideep::online
