// SPDX-License-Identifier: Apache-2.0
#include "online/online_rank.h"

namespace wideep::online {
namespace {

std::vector<std::vector<int32_t>> slots_of_layers(const balance::ModelPlacement& placement) {
  std::vector<std::vector<int32_t>> layers;
  for (const auto& [layer, each] : placement.layers) layers.push_back(each.slot_to_expert);
  return layers;
}

std::vector<balance::Placement> placements_of_layers(const balance::ModelPlacement& placement) {
  std::vector<balance::Placement> layers;
  for (const auto& [layer, each] : placement.layers) layers.push_back(each);
  return layers;
}

}  // namespace

OnlineRank::OnlineRank(const OnlineSetup& setup, int rank)
    : updater_(setup.board, setup.pool, slots_of_layers(setup.placement),
               {.rank = rank,
                .num_spares = setup.options.num_spares,
                .processors = setup.options.processors,
                .layers = setup.options.layers,
                .lend_after = setup.options.lend_after,
                .on_copy = setup.on_copy,
                .relay = setup.relay}) {
  if (rank != 0) return;
  balancer_.emplace(setup.board, setup.pool, updater_, placements_of_layers(setup.placement),
                    setup.policy, setup.on_rebalance, setup.on_trust_change, setup.options,
                    setup.relay);
}

// The balancer first: it reads the updater's outcomes.
void OnlineRank::stop() {
  balancer_.reset();
  updater_.stop();
}

}  // namespace wideep::online
