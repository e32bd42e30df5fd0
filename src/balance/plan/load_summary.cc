// SPDX-License-Identifier: Apache-2.0
#include "plan/load_summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace wideep::balance {

LoadSummary summarize_loads(std::span<const double> loads) {
  const auto count = static_cast<double>(loads.size());
  LoadSummary summary;
  summary.mean = std::accumulate(loads.begin(), loads.end(), 0.0) / count;
  double squares = 0.0;
  for (double load : loads) squares += (load - summary.mean) * (load - summary.mean);
  if (loads.size() > 1) summary.std = std::sqrt(squares / (count - 1.0));
  if (summary.mean > 0.0) {
    summary.imbalance_ratio = *std::max_element(loads.begin(), loads.end()) / summary.mean - 1.0;
  }
  return summary;
}

std::vector<double> slot_loads(const Placement& placement, std::span<const int64_t> expert_load) {
  std::vector<double> share(expert_load.size(), 0.0);  // first replicas, then tokens per replica
  for (int32_t expert : placement.slot_to_expert) {
    if (expert != kUnusedSlot) share[static_cast<size_t>(expert)] += 1.0;
  }
  for (size_t expert = 0; expert < share.size(); ++expert) {
    share[expert] = static_cast<double>(expert_load[expert]) / share[expert];
  }
  std::vector<double> loads;
  loads.reserve(placement.slot_to_expert.size());
  for (int32_t expert : placement.slot_to_expert) {
    loads.push_back(expert == kUnusedSlot ? 0.0 : share[static_cast<size_t>(expert)]);
  }
  return loads;
}

std::vector<double> rank_loads(const Placement& placement, std::span<const int64_t> expert_load) {
  const std::vector<double> slots = slot_loads(placement, expert_load);
  std::vector<double> loads(static_cast<size_t>(placement.ep_size), 0.0);
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    loads[static_cast<size_t>(placement.rank_of_slot(slot))] += slots[static_cast<size_t>(slot)];
  }
  return loads;
}

}  // namespace wideep::balance
