// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek's placement for tests, slow and obvious: every step finds the next item and its pack by
// looking at all of them. Items and packs are in index order, and only a strictly better one
// replaces the best so far, so ties go to the lower index.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

using Items = std::map<int, float>;  // item → weight

inline std::vector<std::vector<int>> pack_items(Items items, int num_packs) {
  const size_t room = items.size() / static_cast<size_t>(num_packs);
  std::vector<std::vector<int>> packs(static_cast<size_t>(num_packs));
  std::vector<float> weights(packs.size(), 0.0f);
  if (room == 1) {
    for (size_t pack = 0; pack < packs.size(); ++pack) {
      packs[pack] = {std::next(items.begin(), static_cast<std::ptrdiff_t>(pack))->first};
    }
    return packs;
  }
  while (!items.empty()) {
    auto heaviest = items.begin();
    for (auto item = items.begin(); item != items.end(); ++item) {
      if (item->second > heaviest->second) heaviest = item;
    }
    size_t lightest = packs.size();
    for (size_t pack = 0; pack < packs.size(); ++pack) {
      if (packs[pack].size() == room) continue;
      if (lightest == packs.size() || weights[pack] < weights[lightest]) lightest = pack;
    }
    packs[lightest].push_back(heaviest->first);
    weights[lightest] += heaviest->second;
    items.erase(heaviest);
  }
  return packs;
}

// `home`: the experts of one node, in the node's order.
inline std::vector<int32_t> plan_node_slowly(const std::vector<int>& home,
                                             const std::vector<float>& load, int num_slots,
                                             int num_ranks) {
  std::vector<int> replicas = home;  // one replica per slot
  std::map<int, int> copies;
  for (int expert : home) copies[expert] = 1;
  const auto share = [&](int expert) {
    return load[static_cast<size_t>(expert)] / static_cast<float>(copies[expert]);
  };
  while (static_cast<int>(replicas.size()) < num_slots) {
    int hottest = home[0];
    for (int expert : home) {
      if (share(expert) > share(hottest)) hottest = expert;
    }
    replicas.push_back(hottest);
    ++copies[hottest];
  }
  Items items;
  for (int expert : replicas) items.emplace(static_cast<int>(items.size()), share(expert));
  std::vector<int32_t> slots;
  for (const auto& rank : pack_items(items, num_ranks)) {
    for (int replica : rank) slots.push_back(replicas[static_cast<size_t>(replica)]);
  }
  return slots;
}

inline std::vector<int32_t> plan_layer_slowly(const std::vector<double>& tokens,
                                              const PlanShape& shape) {
  const std::vector<float> load(tokens.begin(), tokens.end());
  const bool global = shape.num_groups % shape.num_nodes != 0;
  const int num_nodes = global ? 1 : shape.num_nodes;
  const int num_groups = global ? 1 : shape.num_groups;
  const auto group_of = [&](int expert) { return expert / (shape.num_experts / num_groups); };
  Items groups;
  for (int e = 0; e < shape.num_experts; ++e) groups[group_of(e)] += load[static_cast<size_t>(e)];
  std::vector<int32_t> slots;
  for (const auto& node : pack_items(groups, num_nodes)) {
    std::vector<int> home;
    for (int group : node) {
      for (int e = 0; e < shape.num_experts; ++e) {
        if (group_of(e) == group) home.push_back(e);
      }
    }
    const auto more =
        plan_node_slowly(home, load, shape.num_slots / num_nodes, shape.ep_size / num_nodes);
    slots.insert(slots.end(), more.begin(), more.end());
  }
  return slots;
}

}  // namespace wideep::balance
