// SPDX-License-Identifier: Apache-2.0
#include "run/recovery.h"

#include <algorithm>
#include <vector>

namespace wideep::run {
namespace {

// [places] the experts of the layer that no other place has; place_of: of a rank.
template <typename PlaceOf>
std::vector<int> only_there(const balance::Placement& placement, int num_places, PlaceOf place_of) {
  const balance::RoutingTable table = balance::make_routing_table(placement);
  std::vector<int> counts(static_cast<size_t>(num_places));
  for (int expert = 0; expert < table.num_experts(); ++expert) {
    const auto slots = table.replicas(expert);
    const int place = place_of(placement.rank_of_slot(slots.front()));
    const bool alone = std::ranges::all_of(
        slots, [&](int32_t slot) { return place_of(placement.rank_of_slot(slot)) == place; });
    if (alone) ++counts[static_cast<size_t>(place)];
  }
  return counts;
}

void forecast_loss_of_node(const RunPlan& plan, uint64_t record, RecoveryForecast* forecast) {
  if (!plan.kept_nodes) return;
  const transport::NodeMap& nodes = *plan.kept_nodes;
  forecast->num_nodes = nodes.num_nodes();
  if (!plan.is_elastic()) return;
  size_t largest = 0;
  for (int node = 1; node < nodes.num_nodes(); ++node) {
    largest = std::max(largest, nodes.ranks_of(node).size());
  }
  const int left = nodes.num_ranks() - static_cast<int>(largest);
  forecast->ranks_after_node = left;
  forecast->slots_after_node = plan.slots_per_rank(left);
  const auto& layers = plan.model.placement.layers;
  forecast->slot_bytes_after_node = static_cast<uint64_t>(left) *
                                    static_cast<uint64_t>(forecast->slots_after_node) *
                                    layers.size() * record;
  for (const auto& [layer, placement] : layers) {
    const std::vector<int> lost =
        only_there(placement, nodes.num_nodes(), [&](int rank) { return nodes.node_of(rank); });
    for (size_t node = 1; node < lost.size(); ++node) {
      forecast->max_experts_lost_with_node =
          std::max(forecast->max_experts_lost_with_node, lost[node]);
    }
  }
}

}  // namespace

RecoveryForecast forecast_recovery(const RunPlan& plan, const weights::ExpertShape& experts) {
  const auto& layers = plan.model.placement.layers;
  RecoveryForecast forecast{.is_elastic = plan.is_elastic(),
                            .has_pool = plan.balances_online(),
                            .num_ranks = plan.mapping.world_size(),
                            .num_experts = layers.empty() ? 0 : plan.dispatch.num_experts,
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
    const std::vector<int> lost =
        only_there(placement, placement.ep_size, [](int rank) { return rank; });
    for (size_t rank = 0; rank < lost.size(); ++rank) {
      forecast.max_lost_experts = std::max(forecast.max_lost_experts, lost[rank]);
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
  forecast_loss_of_node(plan, record, &forecast);
  return forecast;
}

}  // namespace wideep::run
