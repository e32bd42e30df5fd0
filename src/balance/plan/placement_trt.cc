// SPDX-License-Identifier: Apache-2.0
#include "plan/placement_trt.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "plan/replication.h"

namespace wideep::balance {
namespace {

struct Replica {
  double load;
  int expert;
};

// Ties must break as in TRT, which keeps replicas of equal load in the order of their experts.
std::vector<Replica> sorted_replicas(std::span<const double> load, std::span<const int> replicas) {
  std::vector<Replica> sorted;
  for (size_t expert = 0; expert < load.size(); ++expert) {
    const Replica replica{replica_load(load[expert], replicas[expert]), static_cast<int>(expert)};
    sorted.insert(sorted.end(), static_cast<size_t>(replicas[expert]), replica);
  }
  std::sort(sorted.begin(), sorted.end(), [](const Replica& a, const Replica& b) {
    return a.load != b.load ? a.load > b.load : a.expert < b.expert;
  });
  return sorted;
}

}  // namespace

Placement place_trt(std::span<const double> load, std::span<const int> replicas, int ep_size) {
  WIDEEP_CHECK_EQ(load.size(), replicas.size());
  const int num_slots = std::accumulate(replicas.begin(), replicas.end(), 0);
  WIDEEP_CHECK_EQ(num_slots % ep_size, 0);
  const int slots_per_rank = num_slots / ep_size;

  using RankLoad = std::pair<double, int>;  // load, rank: the top is the lower rank among equals
  std::priority_queue<RankLoad, std::vector<RankLoad>, std::greater<>> coldest;
  for (int rank = 0; rank < ep_size; ++rank) coldest.emplace(0.0, rank);

  Placement placement{static_cast<int>(load.size()), ep_size, {}};
  placement.slot_to_expert.resize(static_cast<size_t>(num_slots));
  std::vector<int> filled(static_cast<size_t>(ep_size), 0);
  for (const Replica& replica : sorted_replicas(load, replicas)) {
    const auto [rank_load, rank] = coldest.top();
    coldest.pop();
    int& local_slot = filled[static_cast<size_t>(rank)];
    const int slot = rank * slots_per_rank + local_slot;
    placement.slot_to_expert[static_cast<size_t>(slot)] = replica.expert;
    if (++local_slot < slots_per_rank) coldest.emplace(rank_load + replica.load, rank);
  }
  return placement;
}

Result<Placement> plan_layer_trt(std::span<const double> load, int ep_size, int num_slots) {
  WIDEEP_TRY(check_slot_counts(static_cast<int>(load.size()), ep_size, num_slots));
  return place_trt(load, replicate_trt(load, num_slots), ep_size);
}

}  // namespace wideep::balance
