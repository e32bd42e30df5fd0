// SPDX-License-Identifier: Apache-2.0
//
// Online balancing of a run: its plan (OnlinePlan, a value), and the memory that the ranks share
// for it (OnlineParts: the host pool of all experts and the update board), which the parent creates
// before it forks the ranks. Each pipeline stage has its own.
//
// Thread safety: pure functions; weights/host_pool.h and online/update_board.h define how ranks
// share the parts.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/machine.h"
#include "online/online_rank.h"
#include "parallel/mapping.h"
#include "run/memory_plan.h"
#include "weights/host_pool.h"
#include "wideep/placement.h"

namespace wideep::run {

// The plan of one pipeline stage.
struct OnlinePlan {
  int num_layers = 0;  // MoE layers; 0: the stage has nothing to balance
  int num_experts = 0;
  weights::ExpertShape experts;
  online::BoardShape board;
  online::PolicyOptions policy;
  online::BalancerOptions balancer;

  bool balances() const { return num_layers > 0; }
  uint64_t pool_bytes() const {  // once per machine
    return experts.record_bytes() * static_cast<uint64_t>(num_layers) *
           static_cast<uint64_t>(num_experts) * static_cast<uint64_t>(experts.num_slices);
  }
  uint64_t spare_bytes_per_rank() const {
    return static_cast<uint64_t>(balancer.num_spares) * experts.record_bytes();
  }
};

// The plans of all stages; empty without online balancing. placement: of all layers. Its
// layer_updates_per_iter applies to each stage, limited by the stage's number of MoE layers.
// Errors (invalid input): online balancing could never have an effect; layer_updates_per_iter
// exceeds the number of MoE layers.
Result<std::vector<OnlinePlan>> plan_online(const weights::ExpertShape& experts,
                                            const balance::ModelPlacement& placement,
                                            const parallel::Mapping& mapping,
                                            const model::ModelConfig& config,
                                            const base::Machine& machine);
// The plan of one stage with these layers and ranks.
Result<OnlinePlan> plan_online_stage(const weights::ExpertShape& experts,
                                     const balance::ModelPlacement& placement, int num_ranks,
                                     const base::Machine& machine);

struct OnlineParts {
  OnlinePlan plan;
  // Null: the stage has nothing to balance.
  std::unique_ptr<weights::HostPool> pool;
  std::unique_ptr<online::UpdateBoard> board;
  // For tests: a policy instead of the plan's; a hook that may change copies.
  std::function<std::unique_ptr<online::UpdatePolicy>()> make_policy;
  online::CopyHook on_copy;

  bool balances() const { return pool != nullptr; }
};

// Creates the shared memory of a stage. min_board_bytes: as UpdateBoard::create. Errors (failed):
// the kernel refuses it.
Result<OnlineParts> make_online_parts(const OnlinePlan& plan,
                                      const base::MakeSharedBytes& make = base::SharedBytes::create,
                                      size_t min_board_bytes = 0);

// Checks that everything fits into memory. memory: [stages] without what online balancing adds.
// usable: bytes that can be allocated. started_here: [stages] ranks that a launcher has started on
// this node; empty: all ranks are forked here. Errors (failed): too little memory, with the items
// that are needed and what is free.
Status check_online_memory(std::span<const OnlineParts> stages, std::span<const MemoryPlan> memory,
                           uint64_t usable, std::span<const int> started_here = {});

// Totals since the present members of the ranks' group began, read from the boards that all of them
// write to.
struct OnlineTotals {
  uint32_t group = 0;     // another number: of another group
  int64_t plans = 0;      // layers planned
  int64_t published = 0;  // layers that switched to their plan
  int64_t cancelled = 0;  // layers whose plan some rank could not execute
  int64_t moves = 0;      // experts copied into slots
  int64_t bytes = 0;      // copied
  int64_t hash_failures = 0;
  int64_t lent_copies = 0;                  // made with normal priority, being late
  int64_t refused = 0;                      // plans of a policy that were no placement of the layer
  double copy_seconds = 0.0;                // of all ranks' copying threads
  online::LedgerSums ledger;                // what the moves have brought and cost
  int resting = 0;                          // stages whose balancer rests
  double seconds_since_plan = -1.0;         // −1: none yet
  double seconds_since_balancer_ran = 0.0;  // heartbeat of its thread
  double seconds_since_updater_ran = 0.0;   // the oldest heartbeat of the ranks' copying threads
};
OnlineTotals read_totals(std::span<const OnlineParts> stages);

}  // namespace wideep::run
