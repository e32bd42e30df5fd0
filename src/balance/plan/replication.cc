// SPDX-License-Identifier: Apache-2.0
#include "plan/replication.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "base/check.h"

namespace wideep::balance {
namespace {

// As TRT sees the load: a positive load may round to 0 in float32.
bool is_zero(double load) { return static_cast<float>(load) == 0.0f; }

std::vector<int> deal_evenly(int num_experts, int num_slots) {
  std::vector<int> replicas(static_cast<size_t>(num_experts), num_slots / num_experts);
  std::for_each_n(replicas.begin(), num_slots % num_experts, [](int& count) { ++count; });
  return replicas;
}

}  // namespace

std::vector<int> replicate_trt(std::span<const double> load, int num_slots) {
  const int num_experts = static_cast<int>(load.size());
  WIDEEP_CHECK_GE(num_experts, 1);
  WIDEEP_CHECK_GE(num_slots, num_experts);
  if (std::all_of(load.begin(), load.end(), is_zero)) return deal_evenly(num_experts, num_slots);

  // Pairs compare by load, then by expert id: the top is the larger id among equals.
  std::priority_queue<std::pair<double, int>> hottest;
  for (int expert = 0; expert < num_experts; ++expert) {
    hottest.emplace(replica_load(load[static_cast<size_t>(expert)], 1), expert);
  }
  std::vector<int> replicas(load.size(), 1);
  for (int slot = num_experts; slot < num_slots; ++slot) {
    const int expert = hottest.top().second;
    hottest.pop();
    const auto idx = static_cast<size_t>(expert);
    hottest.emplace(replica_load(load[idx], ++replicas[idx]), expert);
  }
  return replicas;
}

}  // namespace wideep::balance
