// SPDX-License-Identifier: Apache-2.0
#include "engine/online_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/byte_size.h"
#include "base/cpu_time.h"
#include "base/machine.h"
#include "base/try.h"

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

}  // namespace

int default_spare_slots(const balance::ModelPlacement& placement) {
  return placement.layers.begin()->second.slots_per_rank() *
         std::min(placement.layer_updates_per_iter, 2);
}

Result<OnlineParts> make_online_parts(const weights::ExpertShape& experts,
                                      const balance::ModelPlacement& placement) {
  WIDEEP_TRY(check_useful(placement));
  const balance::Placement& any = placement.layers.begin()->second;
  const int num_layers = static_cast<int>(placement.layers.size());
  OnlineParts parts;
  WIDEEP_TRY_ASSIGN(parts.pool, weights::HostPool::create(experts, num_layers, any.num_experts));
  WIDEEP_TRY_ASSIGN(parts.board,
                    online::UpdateBoard::create({any.ep_size, num_layers, any.num_slots()}));
  parts.policy.share_update = placement.share_update;
  parts.policy.layer_updates_per_iter = placement.layer_updates_per_iter;
  parts.policy.bytes_per_expert = static_cast<int64_t>(experts.record_bytes());
  parts.balancer.layers_in_flight = placement.layer_updates_per_iter;
  parts.policy.policy = placement.update_policy;
  // The ranks of a wide group share the tokens with which a move pays for itself (docs/online.md).
  if (any.ep_size > 8) parts.policy.horizon_tokens *= any.ep_size / 4;
  parts.balancer.processors = base::read_machine().allowed;
  parts.balancer.num_spares =
      placement.spare_slots > 0 ? placement.spare_slots : default_spare_slots(placement);
  return parts;
}

Status check_online_memory(const OnlineParts& parts, const MemoryPlan& plan, uint64_t usable) {
  const uint64_t ranks = static_cast<uint64_t>(plan.num_ranks);
  const uint64_t pool = parts.pool->in_huge_pages() ? 0 : parts.pool->total_bytes();
  const uint64_t spares = ranks * parts.spare_bytes_per_rank();
  const uint64_t needed = plan.bytes_without_cache() + pool + spares;
  if (needed <= usable) return {};
  return failed(fmt::format(
      "memory: {} needed (host pool {}, slots {}, spares {}, other weights and buffers {}), {} "
      "free; lower num_slots or spare_slots, use fewer ranks, or set layer_updates_per_iter to 0, "
      "which needs no host pool",
      base::byte_size(needed), base::byte_size(pool), base::byte_size(ranks * plan.slots_per_rank),
      base::byte_size(spares),
      base::byte_size(plan.bytes_without_cache() - ranks * plan.slots_per_rank),
      base::byte_size(usable)));
}

OnlineTotals read_totals(const online::UpdateBoard& board) {
  const online::BalancerCounters& balancer = board.balancer();
  OnlineTotals totals{.plans = balancer.plans,
                      .published = balancer.published,
                      .cancelled = balancer.cancelled,
                      .moves = balancer.moves,
                      .bytes = balancer.bytes};
  if (balancer.last_plan_ns > 0) totals.seconds_since_plan = seconds_since(balancer.last_plan_ns);
  totals.seconds_since_balancer_ran = seconds_since(balancer.heartbeat_ns);
  for (int rank = 0; rank < board.shape().num_ranks; ++rank) {
    const online::UpdaterCounters& updater = board.updater(rank);
    totals.hash_failures += updater.hash_failures;
    totals.copy_seconds += static_cast<double>(updater.copy_ns) * 1e-9;
    totals.seconds_since_updater_ran =
        std::max(totals.seconds_since_updater_ran, seconds_since(updater.heartbeat_ns));
  }
  return totals;
}

}  // namespace wideep::engine
