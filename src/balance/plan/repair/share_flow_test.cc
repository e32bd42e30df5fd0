// SPDX-License-Identifier: Apache-2.0
//
// Placements change slot by slot at random. After each change the least maximum comes from
// Resplitter, which solves the placement anew: just above it there must be no excess, below it
// some. An excess proves itself: the stuck ranks must have it alone. A failure means that repair
// moves experts where new shares would have been enough, or not where they are not.
#include "plan/repair/share_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "wideep/balancer.h"

namespace wideep::balance {
namespace {

// Every expert once, the other slots at random.
Placement random_placement(int num_experts, int ep_size, int num_slots, std::mt19937& random) {
  Placement placement{num_experts, ep_size, {}};
  for (int slot = 0; slot < num_slots; ++slot) {
    const auto any = static_cast<int32_t>(random() % static_cast<unsigned>(num_experts));
    placement.slot_to_expert.push_back(slot < num_experts ? slot : any);
  }
  std::shuffle(placement.slot_to_expert.begin(), placement.slot_to_expert.end(), random);
  return placement;
}

std::vector<double> random_load(int num_experts, std::mt19937& random) {
  std::lognormal_distribution<double> tokens(0, 1);
  std::vector<double> load(static_cast<size_t>(num_experts));
  for (double& tokens_of_expert : load) {
    tokens_of_expert = random() % 5 == 0 ? 0.0 : std::round(10 * tokens(random));
  }
  return load;
}

double min_max_load(const Placement& placement, std::span<const double> load) {
  Shares shares(placement.slot_to_expert.size());
  return Resplitter(placement).resplit(load, shares);
}

// What the slots carry adds up to the experts' and to the ranks' loads.
void check_amounts(const ShareFlow& flow, std::span<const double> load) {
  std::vector<double> of_expert(load.size()), of_rank(static_cast<size_t>(flow.num_ranks()));
  for (int slot = 0; slot < flow.num_ranks() * flow.slots_per_rank(); ++slot) {
    ASSERT_GE(flow.amount(slot), 0.0);
    of_expert[static_cast<size_t>(flow.expert(slot))] += flow.amount(slot);
    of_rank[static_cast<size_t>(flow.rank_of(slot))] += flow.amount(slot);
  }
  for (size_t e = 0; e < load.size(); ++e) ASSERT_NEAR(of_expert[e], load[e], 1e-9);
  for (size_t r = 0; r < of_rank.size(); ++r) {
    ASSERT_NEAR(of_rank[r], flow.rank_load(static_cast<int>(r)), 1e-9);
  }
}

// The set of all stuck ranks has this excess by itself, so it is the least.
void check_excess(const ShareFlow& flow, double level, double excess) {
  double forced = 0.0;
  for (int slot = 0; slot < flow.num_ranks() * flow.slots_per_rank(); ++slot) {
    if (!flow.first_of_expert(slot)) continue;
    bool inside = flow.stuck(flow.rank_of(slot));
    for (int s = flow.next_slot(slot); s != slot; s = flow.next_slot(s)) {
      inside &= flow.stuck(flow.rank_of(s));
    }
    if (inside) forced += flow.expert_load(flow.expert(slot));
  }
  for (int rank = 0; rank < flow.num_ranks(); ++rank) forced -= flow.stuck(rank) ? level : 0.0;
  ASSERT_NEAR(excess, forced, 1e-9);
}

void change_at_random(Placement& placement, ShareFlow& flow, std::mt19937& random) {
  const auto any_slot = [&] {
    return static_cast<int>(random() % placement.slot_to_expert.size());
  };
  const int a = any_slot(), b = any_slot();
  int32_t& expert_a = placement.slot_to_expert[static_cast<size_t>(a)];
  int32_t& expert_b = placement.slot_to_expert[static_cast<size_t>(b)];
  if (flow.single(a) && flow.single(b)) {
    flow.exchange(a, b);
    std::swap(expert_a, expert_b);
  } else if (!flow.single(a) && expert_a != expert_b) {
    flow.retarget(a, expert_b);
    expert_a = expert_b;
  }
}

TEST(ShareFlow, HasExcessBelowTheLeastMaximumOnlyWhileThePlacementChanges) {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    const int ep_size = 1 + static_cast<int>(random() % 9);
    const int num_slots = ep_size * (1 + static_cast<int>(random() % 5));
    const int num_experts = 1 + static_cast<int>(random() % static_cast<unsigned>(num_slots));
    Placement placement = random_placement(num_experts, ep_size, num_slots, random);
    const std::vector<double> load = random_load(num_experts, random);
    ShareFlow flow(num_experts, ep_size, num_slots / ep_size);
    flow.assign(placement.slot_to_expert, load);
    for (int change = 0; change < 8; ++change) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", change " << change);
      const double min = min_max_load(placement, load);
      ASSERT_EQ(flow.settle(min * (1 + 1e-9)), 0.0);
      for (double part : {0.999, 0.8}) {
        const double excess = flow.settle(part * min);
        ASSERT_EQ(excess > 0.0, min > 0.0);
        ASSERT_NO_FATAL_FAILURE(check_excess(flow, part * min, excess));
      }
      ASSERT_NO_FATAL_FAILURE(check_amounts(flow, load));
      change_at_random(placement, flow, random);
      ASSERT_TRUE(std::equal(placement.slot_to_expert.begin(), placement.slot_to_expert.end(),
                             flow.slot_to_expert().begin()));
    }
  }
}

TEST(ShareFlow, RestoreUndoesATrial) {
  std::mt19937 random(2);
  const Placement placement = random_placement(20, 6, 30, random);
  const std::vector<double> load = random_load(20, random);
  ShareFlow flow(20, 6, 5);
  flow.assign(placement.slot_to_expert, load);
  const double level = 0.9 * min_max_load(placement, load);
  const double excess = flow.settle(level);
  flow.save();
  for (int slot = 0; slot < 30; ++slot) {
    if (flow.single(slot)) continue;
    const int before = flow.expert(slot);
    flow.retarget(slot, (before + 1) % 20);
    flow.settle(level);
    flow.retarget(slot, before);
    flow.restore();
  }
  ASSERT_NO_FATAL_FAILURE(check_amounts(flow, load));
  EXPECT_NEAR(flow.settle(level), excess, 1e-12);
}

}  // namespace
}  // namespace wideep::balance
