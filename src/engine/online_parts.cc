// SPDX-License-Identifier: Apache-2.0
#include "engine/online_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/byte_size.h"
#include "base/cpu_time.h"
#include "base/machine.h"
#include "base/try.h"
#include "parallel/initial_placement.h"

namespace wideep::engine {
namespace {

constexpr const char* kKey = "layer_updates_per_iter";

// A balancer that is enabled and can do nothing is a mistake of the settings.
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

double seconds_since(int64_t then_ns) {
  return static_cast<double>(base::wall_ns() - then_ns) * 1e-9;
}

void add_totals(const online::UpdateBoard& board, OnlineTotals* totals) {
  const online::BalancerCounters& balancer = board.balancer();
  totals->plans += balancer.plans;
  totals->published += balancer.published;
  totals->cancelled += balancer.cancelled;
  totals->moves += balancer.moves;
  totals->bytes += balancer.bytes;
  if (balancer.last_plan_ns > 0) {
    const double since = seconds_since(balancer.last_plan_ns);
    const bool first = totals->seconds_since_plan < 0.0;
    totals->seconds_since_plan = first ? since : std::min(totals->seconds_since_plan, since);
  }
  totals->seconds_since_balancer_ran =
      std::max(totals->seconds_since_balancer_ran, seconds_since(balancer.heartbeat_ns));
  for (int rank = 0; rank < board.shape().num_ranks; ++rank) {
    const online::UpdaterCounters& updater = board.updater(rank);
    totals->hash_failures += updater.hash_failures;
    totals->copy_seconds += static_cast<double>(updater.copy_ns) * 1e-9;
    totals->seconds_since_updater_ran =
        std::max(totals->seconds_since_updater_ran, seconds_since(updater.heartbeat_ns));
  }
}

}  // namespace

int default_spare_slots(const balance::ModelPlacement& placement) {
  return placement.layers.begin()->second.slots_per_rank() *
         std::min(placement.layer_updates_per_iter, 2);
}

Result<OnlineParts> make_online_parts(const weights::ExpertShape& experts,
                                      const balance::ModelPlacement& placement, int num_ranks,
                                      const base::MakeSharedBytes& make) {
  WIDEEP_TRY(check_useful(placement));
  const balance::Placement& any = placement.layers.begin()->second;
  const int num_layers = static_cast<int>(placement.layers.size());
  OnlineParts parts;
  WIDEEP_TRY_ASSIGN(parts.pool,
                    weights::HostPool::create(experts, num_layers, any.num_experts, make));
  WIDEEP_TRY_ASSIGN(parts.board, online::UpdateBoard::create({.num_ranks = num_ranks,
                                                              .num_layers = num_layers,
                                                              .num_slots = any.num_slots(),
                                                              .num_owners = any.ep_size,
                                                              .num_slices = experts.num_slices},
                                                             make));
  parts.policy.share_update = placement.share_update;
  parts.policy.layer_updates_per_iter = placement.layer_updates_per_iter;
  parts.policy.bytes_per_expert =
      static_cast<int64_t>(experts.record_bytes()) * (num_ranks / any.ep_size);
  parts.balancer.layers_in_flight = placement.layer_updates_per_iter;
  parts.policy.policy = placement.update_policy;
  // The ranks of a wide group share the tokens with which a move pays for itself (docs/online.md).
  if (any.ep_size > 8) parts.policy.horizon_tokens *= any.ep_size / 4;
  parts.balancer.processors = base::read_machine().allowed;
  for (const auto& [layer, each] : placement.layers) parts.balancer.layers.push_back(layer);
  parts.balancer.num_spares =
      placement.spare_slots > 0 ? placement.spare_slots : default_spare_slots(placement);
  return parts;
}

Result<std::vector<OnlineParts>> make_online_stages(const weights::ExpertShape& experts,
                                                    const balance::ModelPlacement& placement,
                                                    const parallel::Mapping& mapping,
                                                    int num_layers,
                                                    const base::MakeSharedBytes& make) {
  WIDEEP_TRY(check_useful(placement));
  std::vector<OnlineParts> stages(static_cast<size_t>(mapping.sizes().pp));
  for (size_t i = 0; i < stages.size(); ++i) {
    balance::ModelPlacement part = parallel::placement_of_layers(
        placement, mapping.pp_layers(static_cast<int>(i), num_layers));
    if (part.layers.empty()) continue;
    part.layer_updates_per_iter =
        std::min(part.layer_updates_per_iter, static_cast<int>(part.layers.size()));
    WIDEEP_TRY_ASSIGN(stages[i], make_online_parts(experts, part, mapping.stage_size(), make));
  }
  return stages;
}

Status check_online_memory(std::span<const OnlineParts> stages, std::span<const MemoryPlan> plan,
                           uint64_t usable, std::span<const int> started_here) {
  uint64_t pools = 0, spares = 0, slots = 0, all = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const uint64_t ranks =
        started_here.empty() ? plan[i].all_ranks() : static_cast<uint64_t>(started_here[i]);
    if (ranks == 0) continue;
    slots += ranks * plan[i].slots_per_rank;
    all += started_here.empty() ? plan[i].bytes_without_cache()
                                : plan[i].bytes_without_cache_on_node(ranks);
    if (!stages[i].balances()) continue;
    pools += stages[i].pool->in_huge_pages() ? 0 : stages[i].pool->total_bytes();
    spares += ranks * stages[i].spare_bytes_per_rank();
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
  OnlineTotals totals;
  for (const OnlineParts& stage : stages) {
    if (stage.balances()) add_totals(*stage.board, &totals);
  }
  return totals;
}

}  // namespace wideep::engine
