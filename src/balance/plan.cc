// SPDX-License-Identifier: Apache-2.0
#include "wideep/balancer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/try.h"

namespace wideep::balance {

Status check_plan_shape(const PlanShape& shape) {
  WIDEEP_TRY(check_slot_counts(shape.num_experts, shape.ep_size, shape.num_slots));
  if (shape.num_nodes < 1 || shape.ep_size % shape.num_nodes != 0) {
    return invalid_input(fmt::format("nodes: expected a divisor of the {} ranks, found {}",
                                     shape.ep_size, shape.num_nodes));
  }
  if (shape.num_groups < 1 || shape.num_experts % shape.num_groups != 0) {
    return invalid_input(fmt::format("groups: expected a divisor of the {} experts, found {}",
                                     shape.num_experts, shape.num_groups));
  }
  return {};
}

Status check_load(std::span<const double> load, int num_experts) {
  double sum = 0.0;
  for (size_t i = 0; i < load.size(); ++i) {
    sum += load[i];
    if (load[i] >= 0.0 && std::isfinite(sum)) continue;
    const auto experts = static_cast<size_t>(num_experts);
    return invalid_input(
        fmt::format("load of layer {}, expert {}: expected tokens that are not negative and have a "
                    "finite sum, found {}",
                    i / experts, i % experts, load[i]));
  }
  return {};
}

Shares equal_shares(const Placement& placement) {
  std::vector<int> replicas(static_cast<size_t>(placement.num_experts), 0);
  for (int32_t expert : placement.slot_to_expert) ++replicas[static_cast<size_t>(expert)];
  Shares shares;
  shares.reserve(placement.slot_to_expert.size());
  for (int32_t expert : placement.slot_to_expert) {
    shares.push_back(1.0 / replicas[static_cast<size_t>(expert)]);
  }
  return shares;
}

std::vector<double> rank_loads(const Placement& placement, std::span<const double> expert_load,
                               std::span<const double> shares) {
  std::vector<double> loads(static_cast<size_t>(placement.ep_size), 0.0);
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    const auto idx = static_cast<size_t>(slot);
    loads[static_cast<size_t>(placement.rank_of_slot(slot))] +=
        expert_load[static_cast<size_t>(placement.slot_to_expert[idx])] * shares[idx];
  }
  return loads;
}

double imbalance_ratio(std::span<const double> loads) {
  const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (total <= 0.0) return 0.0;
  const double mean = total / static_cast<double>(loads.size());
  return *std::max_element(loads.begin(), loads.end()) / mean - 1.0;
}

}  // namespace wideep::balance
