// SPDX-License-Identifier: Apache-2.0
//
// The original's steps one by one, in its order and in float32: what matters is the same plan, not
// a fast one. Where the original sorts or takes a maximum, ties here go to the lower index,
// because torch promises no order.
#include "plan/placement_deepseek.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/try.h"

namespace wideep::balance {
namespace {

std::vector<int> first_integers(size_t count) {
  std::vector<int> integers(count);
  std::iota(integers.begin(), integers.end(), 0);
  return integers;
}

// Item ids, heaviest first, in their order among equals.
std::vector<int> by_falling_weight(std::span<const float> weight) {
  std::vector<int> items = first_integers(weight.size());
  std::sort(items.begin(), items.end(), [&](int a, int b) {
    const float weight_a = weight[static_cast<size_t>(a)];
    const float weight_b = weight[static_cast<size_t>(b)];
    return weight_a != weight_b ? weight_a > weight_b : a < b;
  });
  return items;
}

struct Pack {
  float weight = 0;
  std::vector<int> items;
};

// weight: [n] of the items; n is a multiple of num_packs. Returns the items [n], pack after pack,
// each pack's in the order in which they entered.
// The linear search for a pack is the slow and plain form on purpose: this planner exists for
// comparison, and min_element gives ties to the lower pack as the original does.
std::vector<int> pack_evenly(std::span<const float> weight, int num_packs) {
  const size_t items_per_pack = weight.size() / static_cast<size_t>(num_packs);
  if (items_per_pack == 1) return first_integers(weight.size());

  const auto goes_before = [&](const Pack& a, const Pack& b) {
    const bool a_has_room = a.items.size() < items_per_pack;
    const bool b_has_room = b.items.size() < items_per_pack;
    return a_has_room != b_has_room ? a_has_room : a.weight < b.weight;
  };
  std::vector<Pack> packs(static_cast<size_t>(num_packs));
  for (int item : by_falling_weight(weight)) {
    Pack& pack = *std::min_element(packs.begin(), packs.end(), goes_before);
    pack.items.push_back(item);
    pack.weight += weight[static_cast<size_t>(item)];
  }
  std::vector<int> packed;
  packed.reserve(weight.size());
  for (const Pack& pack : packs) packed.insert(packed.end(), pack.items.begin(), pack.items.end());
  return packed;
}

// Step 1. Returns the experts [E] in the order of the nodes they go to, groups kept whole.
std::vector<int> experts_by_node(std::span<const float> load, int num_groups, int num_nodes) {
  const size_t group_size = load.size() / static_cast<size_t>(num_groups);
  std::vector<float> group_load;
  for (size_t first = 0; first < load.size(); first += group_size) {
    const std::span<const float> group = load.subspan(first, group_size);
    group_load.push_back(static_cast<float>(std::accumulate(group.begin(), group.end(), 0.0)));
  }
  std::vector<int> experts;
  experts.reserve(load.size());
  for (int group : pack_evenly(group_load, num_nodes)) {
    const int first = group * static_cast<int>(group_size);
    for (int i = 0; i < static_cast<int>(group_size); ++i) experts.push_back(first + i);
  }
  return experts;
}

// Step 2. Returns the expert of each replica, [num_replicas]: every expert once, in order, then the
// spare ones as they were given out; replica_load receives their tokens, [num_replicas].
// max_element gives ties to the lower expert, as the original does.
std::vector<int> replicate(std::span<const float> load, size_t num_replicas,
                           std::vector<float>* replica_load) {
  std::vector<int> experts = first_integers(load.size());
  std::vector<int> count(load.size(), 1);
  std::vector<float> share(load.begin(), load.end());
  while (experts.size() < num_replicas) {
    const auto hottest = std::max_element(share.begin(), share.end()) - share.begin();
    const auto idx = static_cast<size_t>(hottest);
    experts.push_back(static_cast<int>(hottest));
    share[idx] = load[idx] / static_cast<float>(++count[idx]);
  }
  for (int expert : experts) replica_load->push_back(share[static_cast<size_t>(expert)]);
  return experts;
}

// Steps 2 and 3 for one node. experts: the ids that live there; slots: where its slots begin.
void fill_node(std::span<const float> load, std::span<const int> experts, int num_ranks,
               std::span<int32_t> slots) {
  std::vector<float> local_load;
  for (int expert : experts) local_load.push_back(load[static_cast<size_t>(expert)]);
  std::vector<float> replica_load;
  const std::vector<int> replicas = replicate(local_load, slots.size(), &replica_load);
  const std::vector<int> packed = pack_evenly(replica_load, num_ranks);
  std::transform(packed.begin(), packed.end(), slots.begin(), [&](int replica) {
    return experts[static_cast<size_t>(replicas[static_cast<size_t>(replica)])];
  });
}

}  // namespace

Result<Placement> plan_layer_deepseek(std::span<const double> load, const PlanShape& shape) {
  WIDEEP_TRY(check_plan_shape(shape));
  WIDEEP_CHECK_EQ(load.size(), static_cast<size_t>(shape.num_experts));
  const bool hierarchical = shape.num_groups % shape.num_nodes == 0;
  const int num_groups = hierarchical ? shape.num_groups : 1;
  const int num_nodes = hierarchical ? shape.num_nodes : 1;

  std::vector<float> rounded;
  for (double tokens : load) rounded.push_back(static_cast<float>(tokens));
  const std::vector<int> experts = experts_by_node(rounded, num_groups, num_nodes);

  Placement placement{shape.num_experts, shape.ep_size, {}};
  placement.slot_to_expert.resize(static_cast<size_t>(shape.num_slots));
  const size_t node_experts = experts.size() / static_cast<size_t>(num_nodes);
  const size_t node_slots = placement.slot_to_expert.size() / static_cast<size_t>(num_nodes);
  for (size_t node = 0; node < static_cast<size_t>(num_nodes); ++node) {
    fill_node(rounded, std::span(experts).subspan(node * node_experts, node_experts),
              shape.ep_size / num_nodes,
              std::span(placement.slot_to_expert).subspan(node * node_slots, node_slots));
  }
  return placement;
}

}  // namespace wideep::balance
