// SPDX-License-Identifier: Apache-2.0
#include "run/recovery.h"

#include <algorithm>
#include <vector>

namespace wideep::run {
namespace {

// [ranks] the experts of the layer that no other rank has.
std::vector<int> only_there(const balance::Placement& placement) {
  const balance::RoutingTable table = balance::make_routing_table(placement);
  std::vector<int> counts(static_cast<size_t>(placement.ep_size));
  for (int expert = 0; expert < table.num_experts(); ++expert) {
    const auto slots = table.replicas(expert);
    const int rank = placement.rank_of_slot(slots.front());
    const bool alone = std::ranges::all_of(
        slots, [&](int32_t slot) { return placement.rank_of_slot(slot) == rank; });
    if (alone) ++counts[static_cast<size_t>(rank)];
  }
  return counts;
}

}  // namespace

RecoveryForecast forecast_recovery(const RunPlan& plan, const weights::ExpertShape& experts) {
  const auto& layers = plan.model.placement.layers;
  RecoveryForecast forecast{.is_elastic = plan.is_elastic(),
                            .has_pool = plan.balances_online(),
                            .num_ranks = plan.mapping.world_size(),
                            .num_experts = plan.dispatch.num_experts,
                            .slots_before = plan.dispatch.slots_per_rank,
                            .slots_after = plan.dispatch.slots_per_rank};
  const uint64_t record = experts.record_bytes();
  const auto num_layers = static_cast<uint64_t>(layers.size());
  const auto bytes = [&](int ranks, int slots) {
    return static_cast<uint64_t>(ranks) * static_cast<uint64_t>(slots) * num_layers * record;
  };
  const int owners = plan.dispatch.num_owners();
  forecast.slot_bytes_before = bytes(owners, forecast.slots_before);
  forecast.slot_bytes_after = forecast.slot_bytes_before;
  if (forecast.is_elastic && owners > 1) {
    forecast.slots_after = plan.slots_per_rank(owners - 1);
    forecast.slot_bytes_after = bytes(owners - 1, forecast.slots_after);
  }
  std::vector<uint64_t> lost_by_rank(static_cast<size_t>(owners));
  for (const auto& [layer, placement] : layers) {
    const std::vector<int> lost = only_there(placement);
    for (size_t rank = 0; rank < lost.size(); ++rank) {
      forecast.most_lost_experts = std::max(forecast.most_lost_experts, lost[rank]);
      lost_by_rank[rank] += static_cast<uint64_t>(lost[rank]) * record;
    }
  }
  if (!lost_by_rank.empty()) forecast.lost_bytes = std::ranges::max(lost_by_rank);
  forecast.pool_bytes = num_layers * static_cast<uint64_t>(forecast.num_experts) * record *
                        static_cast<uint64_t>(experts.num_slices);
  const int per_rank = (2 * forecast.num_experts + owners - 1) / owners;
  forecast.slots_without_loss = owners > 1 ? per_rank * owners : 0;
  forecast.replica_bytes =
      per_rank > forecast.slots_before ? bytes(owners, per_rank - forecast.slots_before) : 0;
  return forecast;
}

}  // namespace wideep::run
