// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek's placement for tests, slow and obvious: the rules as one would play them with cards. An
// item is taken from the table and laid on a pack, each found by looking at all. Items and packs
// are maps in index order, so that the first that is strictly better is the lower index among
// equals.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

using Deck = std::map<int, float>;  // item → weight

inline std::vector<std::vector<int>> deal(Deck deck, int num_packs) {
  const size_t room = deck.size() / static_cast<size_t>(num_packs);
  std::vector<std::vector<int>> packs(static_cast<size_t>(num_packs));
  std::vector<float> weights(packs.size(), 0.0f);
  if (room == 1) {
    for (size_t pack = 0; pack < packs.size(); ++pack) {
      packs[pack] = {std::next(deck.begin(), static_cast<std::ptrdiff_t>(pack))->first};
    }
    return packs;
  }
  while (!deck.empty()) {
    auto heaviest = deck.begin();
    for (auto item = deck.begin(); item != deck.end(); ++item) {
      if (item->second > heaviest->second) heaviest = item;
    }
    size_t lightest = packs.size();
    for (size_t pack = 0; pack < packs.size(); ++pack) {
      if (packs[pack].size() == room) continue;
      if (lightest == packs.size() || weights[pack] < weights[lightest]) lightest = pack;
    }
    packs[lightest].push_back(heaviest->first);
    weights[lightest] += heaviest->second;
    deck.erase(heaviest);
  }
  return packs;
}

// `home`: the experts of one node, in the order in which the node knows them.
inline std::vector<int32_t> play_node(const std::vector<int>& home, const std::vector<float>& load,
                                      int num_slots, int num_ranks) {
  std::vector<int> cards = home;  // one card per slot
  std::map<int, int> copies;
  for (int expert : home) copies[expert] = 1;
  const auto share = [&](int expert) {
    return load[static_cast<size_t>(expert)] / static_cast<float>(copies[expert]);
  };
  while (static_cast<int>(cards.size()) < num_slots) {
    int hottest = home[0];
    for (int expert : home) {
      if (share(expert) > share(hottest)) hottest = expert;
    }
    cards.push_back(hottest);
    ++copies[hottest];
  }
  Deck deck;
  for (int expert : cards) deck.emplace(static_cast<int>(deck.size()), share(expert));
  std::vector<int32_t> slots;
  for (const auto& rank : deal(deck, num_ranks)) {
    for (int card : rank) slots.push_back(cards[static_cast<size_t>(card)]);
  }
  return slots;
}

inline std::vector<int32_t> play(const std::vector<double>& tokens, const PlanShape& shape) {
  const std::vector<float> load(tokens.begin(), tokens.end());
  const bool global = shape.num_groups % shape.num_nodes != 0;
  const int num_nodes = global ? 1 : shape.num_nodes;
  const int num_groups = global ? 1 : shape.num_groups;
  const auto group_of = [&](int expert) { return expert / (shape.num_experts / num_groups); };
  Deck groups;
  for (int e = 0; e < shape.num_experts; ++e) groups[group_of(e)] += load[static_cast<size_t>(e)];
  std::vector<int32_t> slots;
  for (const auto& node : deal(groups, num_nodes)) {
    std::vector<int> home;
    for (int group : node) {
      for (int e = 0; e < shape.num_experts; ++e) {
        if (group_of(e) == group) home.push_back(e);
      }
    }
    const auto more = play_node(home, load, shape.num_slots / num_nodes, shape.ep_size / num_nodes);
    slots.insert(slots.end(), more.begin(), more.end());
  }
  return slots;
}

}  // namespace wideep::balance
