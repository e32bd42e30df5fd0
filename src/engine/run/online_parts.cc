// SPDX-License-Identifier: Apache-2.0
//
// plan_online() splits the placement into the stages' layers and plans each stage by itself; checks
// that concern all layers come first, so that their messages have the model's numbers.
//
// read_totals() adds up counters that other processes write without a lock. When a new group
// begins, they clear the boards one after the other; a number that is odd meanwhile
// (board->group()) tells a reader to try again, as in a sequence lock.
#include "run/online_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/byte_size.h"
#include "base/cpu_time.h"
#include "base/try.h"
#include "model/model_division.h"
#include "parallel/initial_placement.h"
#include "run/layouts.h"

namespace wideep::run {
namespace {

constexpr const char* kKey = "layer_updates_per_iter";

// Online balancing that is enabled but can have no effect is an error of the settings.
Status check_useful(const balance::ModelPlacement& placement) {
  const int num_layers = static_cast<int>(placement.layers.size());
  if (num_layers > online::kMaxLayers) {
    return invalid_input(fmt::format("{}: online balancing serves at most {} MoE layers, found {}",
                                     kKey, online::kMaxLayers, num_layers));
  }
  if (num_layers == 0) {
    return invalid_input(
        fmt::format("{}: the model has no MoE layer to balance; set it to 0", kKey));
  }
  if (placement.layers.begin()->second.ep_size == 1) {
    return invalid_input(
        fmt::format("{}: one rank holds all experts: there is nothing to balance; set it to 0 or "
                    "use more ranks",
                    kKey));
  }
  if (placement.layer_updates_per_iter > num_layers) {
    return invalid_input(fmt::format("{}: expected at most the model's {} MoE layers, found {}",
                                     kKey, num_layers, placement.layer_updates_per_iter));
  }
  return {};
}

// CLOCK_MONOTONIC is the same for all processes of a machine, so ranks' times can be compared.
double seconds_since(int64_t then_ns) {
  return static_cast<double>(base::wall_ns() - then_ns) * 1e-9;
}

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

void add_totals(const online::UpdateBoard& board, OnlineTotals* totals) {
  const online::BalancerCounters& balancer = board.balancer();
  totals->plans += balancer.plans;
  totals->published += balancer.published;
  totals->cancelled += balancer.cancelled;
  totals->moves += balancer.moves;
  totals->bytes += balancer.bytes;
  totals->refused += balancer.refused;
  totals->ledger += {.moves = balancer.moves,
                     .expected_seconds = seconds(balancer.expected_ns),
                     .saved_seconds = seconds(balancer.saved_ns),
                     .lost_seconds = seconds(balancer.lost_ns),
                     .paid_seconds = seconds(balancer.paid_ns)};
  totals->resting += balancer.rests ? 1 : 0;
  if (balancer.last_plan_ns > 0) {
    const double since = seconds_since(balancer.last_plan_ns);
    const bool first = totals->seconds_since_plan < 0.0;
    totals->seconds_since_plan = first ? since : std::min(totals->seconds_since_plan, since);
  }
  totals->seconds_since_balancer_ran =
      std::max(totals->seconds_since_balancer_ran, seconds_since(balancer.heartbeat_ns));
  for (int rank = 0; rank < board.num_ranks(); ++rank) {
    const online::UpdaterCounters& updater = board.updater(rank);
    totals->hash_failures += updater.hash_failures;
    totals->lent_copies += updater.lent_copies;
    totals->copy_seconds += seconds(updater.copy_ns);
    totals->seconds_since_updater_ran =
        std::max(totals->seconds_since_updater_ran, seconds_since(updater.heartbeat_ns));
  }
}

// Whose counters the boards have; nullopt: they are being cleared, one after the other.
std::optional<uint32_t> group_of(std::span<const OnlineParts> stages) {
  std::optional<uint32_t> group;
  for (const OnlineParts& stage : stages) {
    if (!stage.balances()) continue;
    const uint32_t found = stage.board->group();
    if (found % 2 != 0 || group.value_or(found) != found) return std::nullopt;
    group = found;
  }
  return group.value_or(0);
}

}  // namespace

Result<OnlinePlan> plan_online_stage(const weights::ExpertShape& experts,
                                     const balance::ModelPlacement& placement, int num_ranks,
                                     const base::Machine& machine) {
  WIDEEP_TRY(check_useful(placement));
  const balance::Placement& any = placement.layers.begin()->second;
  const int updates = placement.layer_updates_per_iter;
  OnlinePlan plan;
  plan.num_layers = static_cast<int>(placement.layers.size());
  plan.num_experts = any.num_experts;
  plan.experts = experts;
  plan.board = {.num_ranks = num_ranks,
                .num_layers = plan.num_layers,
                .num_slots = any.num_slots(),
                .num_owners = any.ep_size,
                .num_slices = experts.num_slices};
  plan.policy.policy = placement.update_policy;
  plan.policy.share_update = placement.share_update;
  plan.policy.layer_updates_per_iter = updates;
  plan.policy.bytes_per_expert =
      static_cast<int64_t>(experts.record_bytes()) * (num_ranks / any.ep_size);
  plan.policy.horizon_tokens = online::default_horizon_tokens(any.ep_size);
  plan.balancer.layers_in_flight = updates;
  // Default: spares for all slots of the layers in flight, but of at most two layers.
  plan.balancer.num_spares = placement.spare_slots > 0
                                 ? placement.spare_slots
                                 : any.slots_per_rank() * std::min(updates, 2);
  plan.balancer.processors = machine.allowed;
  for (const auto& [layer, each] : placement.layers) plan.balancer.layers.push_back(layer);
  return plan;
}

Result<std::vector<OnlinePlan>> plan_online(const weights::ExpertShape& experts,
                                            const balance::ModelPlacement& placement,
                                            const parallel::Mapping& mapping,
                                            const model::ModelConfig& config,
                                            const base::Machine& machine) {
  std::vector<OnlinePlan> stages;
  if (placement.layer_updates_per_iter == 0) return stages;
  WIDEEP_TRY(check_useful(placement));
  for (int stage = 0; stage < mapping.sizes().pp; ++stage) {
    balance::ModelPlacement part = parallel::placement_of_layers(
        placement, model::stage_layers(config, stage, mapping.sizes().pp));
    stages.emplace_back();
    if (part.layers.empty()) continue;
    part.layer_updates_per_iter =
        std::min(part.layer_updates_per_iter, static_cast<int>(part.layers.size()));
    WIDEEP_TRY_ASSIGN(stages.back(),
                      plan_online_stage(experts, part, mapping.stage_size(), machine));
  }
  return stages;
}

Result<OnlineParts> make_online_parts(const OnlinePlan& plan, const base::MakeSharedBytes& make,
                                      size_t min_board_bytes) {
  OnlineParts parts{.plan = plan};
  if (!plan.balances()) return parts;
  WIDEEP_TRY_ASSIGN(
      parts.pool, weights::HostPool::create(plan.experts, plan.num_layers, plan.num_experts, make));
  WIDEEP_TRY_ASSIGN(parts.board, online::UpdateBoard::create(plan.board, make, min_board_bytes));
  return parts;
}

Status check_online_memory(std::span<const OnlineParts> stages, std::span<const MemoryPlan> memory,
                           uint64_t usable, std::span<const int> started_here) {
  uint64_t pools = 0, spares = 0, slots = 0, all = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const uint64_t ranks =
        started_here.empty() ? memory[i].all_ranks() : static_cast<uint64_t>(started_here[i]);
    if (ranks == 0) continue;
    slots += ranks * memory[i].slots_per_rank;
    all += started_here.empty() ? memory[i].bytes_without_cache()
                                : memory[i].bytes_without_cache_on_node(ranks);
    if (!stages[i].balances()) continue;
    // Reserved huge pages are not part of `usable`.
    pools += stages[i].pool->in_huge_pages() ? 0 : stages[i].pool->total_bytes();
    spares += ranks * stages[i].plan.spare_bytes_per_rank();
  }
  const uint64_t needed = all + pools + spares;
  if (needed <= usable) return {};
  return failed(fmt::format(
      "memory: {} needed (host pool {}, slots {}, spares {}, other weights and buffers {}), {} "
      "free; lower num_slots or spare_slots, use fewer ranks, or set layer_updates_per_iter to 0, "
      "which needs no host pool",
      base::byte_size(needed), base::byte_size(pools), base::byte_size(slots),
      base::byte_size(spares), base::byte_size(all - slots), base::byte_size(usable)));
}

OnlineTotals read_totals(std::span<const OnlineParts> stages) {
  for (;; std::this_thread::yield()) {
    const std::optional<uint32_t> group = group_of(stages);
    if (!group) continue;
    OnlineTotals totals;
    totals.group = *group;
    for (const OnlineParts& stage : stages) {
      if (stage.balances()) add_totals(*stage.board, &totals);
    }
    if (group_of(stages) == group) return totals;
  }
}

}  // namespace wideep::run
