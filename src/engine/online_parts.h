// SPDX-License-Identifier: Apache-2.0
//
// What online balancing needs beside a placement: the host pool of all experts, the board of plans,
// and the settings of policy and balancer. Made by the parent before it forks the ranks.
//
// Thread safety: pure functions; the parts are shared as their headers say.
#pragma once

#include <functional>
#include <memory>

#include "engine/memory_plan.h"
#include "online/online_rank.h"
#include "parallel/mapping.h"
#include "weights/host_pool.h"
#include "wideep/placement.h"

namespace wideep::engine {

struct OnlineParts {
  // Null: there is nothing to balance, for the pipeline stage has no MoE layer.
  std::unique_ptr<weights::HostPool> pool;
  std::unique_ptr<online::UpdateBoard> board;
  online::PolicyOptions policy;
  online::BalancerOptions balancer;
  // For tests: instead of the policy of the options; what happens to copies.
  std::function<std::unique_ptr<online::UpdatePolicy>()> make_policy;
  online::CopyHook on_copy;

  bool balances() const { return pool != nullptr; }
  uint64_t spare_bytes_per_rank() const {
    return static_cast<uint64_t>(balancer.num_spares) * pool->shape().record_bytes();
  }
};

// Spare records of each rank where the settings do not say: enough for all slots of the layers
// under way, of at most two of them.
int default_spare_slots(const balance::ModelPlacement& placement);

// Of one pipeline stage's layers and ranks. REQUIRES: placement.layer_updates_per_iter > 0.
// Errors: (invalid input) online balancing could never do anything, more layers an iteration than
// there are; (failed) the kernel refuses the memory.
Result<OnlineParts> make_online_parts(
    const weights::ExpertShape& experts, const balance::ModelPlacement& placement, int num_ranks,
    const base::MakeSharedBytes& make = base::SharedBytes::create);

// Of every stage, each with its own balancer. placement: of all layers; its
// layer_updates_per_iter are those of a stage, at most as many as it has.
Result<std::vector<OnlineParts>> make_online_stages(
    const weights::ExpertShape& experts, const balance::ModelPlacement& placement,
    const parallel::Mapping& mapping, int num_layers,
    const base::MakeSharedBytes& make = base::SharedBytes::create);

// Is there memory for all of it? plan: of each stage, without what online balancing adds. usable:
// bytes that can be allocated. started_here: how many ranks of each stage a launcher has started on
// this node; empty: all are forked here. Errors (failed) give what is needed, item by item, and
// what is there.
Status check_online_memory(std::span<const OnlineParts> stages, std::span<const MemoryPlan> plan,
                           uint64_t usable, std::span<const int> started_here = {});

// What has happened since the start, from the board that all ranks write on.
struct OnlineTotals {
  int64_t plans = 0;      // layers planned
  int64_t published = 0;  // layers that took their plan over
  int64_t cancelled = 0;  // layers whose plan a rank could not follow
  int64_t moves = 0;      // experts copied into slots
  int64_t bytes = 0;      // and what that moved
  int64_t hash_failures = 0;
  double copy_seconds = 0.0;                // of all ranks' copying threads
  double seconds_since_plan = -1.0;         // −1: none yet
  double seconds_since_balancer_ran = 0.0;  // heartbeat of its thread
  double seconds_since_updater_ran = 0.0;   // the oldest heartbeat of the ranks' copying threads
};
OnlineTotals read_totals(std::span<const OnlineParts> stages);

}  // namespace wideep::engine
