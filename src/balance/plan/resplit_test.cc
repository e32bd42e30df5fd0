// SPDX-License-Identifier: Apache-2.0
//
// The least maximum is a minimum cut. On up to ten ranks it is held against all 2^R sets of ranks;
// on up to 1,024 the cut that Resplitter returns must prove its own answer. Loads with zeros, with
// one hot expert, 17 powers of ten apart or of the smallest positive number are where a flow of
// floating-point numbers goes wrong. A failure leaves a rank overloaded that replicas could
// relieve, or does not return, in the middle of a forward pass.
#include "wideep/balancer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "plan/placement_trt.h"

namespace wideep::balance {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

// The ranks that hold an expert, as bits.
std::vector<uint32_t> ranks_of_experts(const Placement& placement) {
  std::vector<uint32_t> ranks(static_cast<size_t>(placement.num_experts), 0);
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    const int32_t expert = placement.slot_to_expert[static_cast<size_t>(slot)];
    ranks[static_cast<size_t>(expert)] |= 1u << placement.rank_of_slot(slot);
  }
  return ranks;
}

double forced_mean(const Placement& placement, std::span<const double> load, uint32_t set) {
  const std::vector<uint32_t> ranks = ranks_of_experts(placement);
  double forced = 0;
  for (size_t e = 0; e < load.size(); ++e) forced += (ranks[e] & ~set) == 0 ? load[e] : 0;
  return forced / __builtin_popcount(set);
}

// max over all sets U of ranks of forced(U) / |U|, by looking at all 2^R sets.
double optimum_over_all_sets(const Placement& placement, std::span<const double> load) {
  double best = 0;
  for (uint32_t set = 1; set < 1u << placement.ep_size; ++set) {
    best = std::max(best, forced_mean(placement, load, set));
  }
  return best;
}

// What must hold of any answer, for any size.
void check_shares(const Placement& placement, std::span<const double> load,
                  std::span<const double> shares, double max_load) {
  std::vector<double> sum(load.size(), 0.0);
  for (size_t slot = 0; slot < shares.size(); ++slot) {
    ASSERT_GE(shares[slot], 0.0);
    sum[static_cast<size_t>(placement.slot_to_expert[slot])] += shares[slot];
  }
  for (double of_expert : sum) ASSERT_NEAR(of_expert, 1.0, 1e-12);
  const std::vector<double> loads = rank_loads(placement, load, shares);
  const double max = *std::max_element(loads.begin(), loads.end());
  ASSERT_NEAR(max_load, max, 1e-11 * max);
}

void check_certificate(const Placement& placement, std::span<const double> load,
                       const Resplitter& resplitter, double max_load) {
  uint32_t set = 0;
  for (int rank : resplitter.bottleneck_ranks()) set |= 1u << rank;
  if (set == 0) set = (1u << placement.ep_size) - 1;
  ASSERT_NEAR(forced_mean(placement, load, set), max_load, 1e-10 * max_load);
}

void check_optimal(const Placement& placement, std::span<const double> load) {
  Resplitter resplitter(placement);
  Shares shares(placement.slot_to_expert.size());
  const double max_load = resplitter.resplit(load, shares);
  check_shares(placement, load, shares, max_load);
  const double optimum = optimum_over_all_sets(placement, load);
  ASSERT_NEAR(max_load, optimum, 1e-10 * optimum);
  check_certificate(placement, load, resplitter, max_load);
  const Shares first = shares;
  resplitter.resplit(load, shares);
  ASSERT_EQ(shares, first);
}

// Every expert once, the other slots at random: often duplicates on a rank, often unconnected.
Placement random_placement(int num_experts, int ep_size, int slots_per_rank, std::mt19937& random) {
  Placement placement{num_experts, ep_size, {}};
  const int num_slots = ep_size * slots_per_rank;
  for (int slot = 0; slot < num_slots; ++slot) {
    const auto any = static_cast<int>(random() % static_cast<unsigned>(num_experts));
    placement.slot_to_expert.push_back(slot < num_experts ? slot : any);
  }
  std::shuffle(placement.slot_to_expert.begin(), placement.slot_to_expert.end(), random);
  return placement;
}

// Kinds: small integers with zeros; heavy tail; one hot expert; powers of ten far apart.
std::vector<double> random_load(int num_experts, int kind, std::mt19937& random) {
  std::lognormal_distribution<double> tail(0, 1.5);
  std::vector<double> load(static_cast<size_t>(num_experts));
  for (double& tokens : load) {
    if (kind == 0) tokens = static_cast<double>(random() % 5);
    if (kind == 1) tokens = tail(random);
    if (kind == 2) tokens = 1;
    if (kind == 3) tokens = std::pow(10.0, static_cast<double>(random() % 18));
  }
  if (kind == 2) load[random() % load.size()] = 1000;
  return load;
}

TEST(Resplit, ReachesTheMinimumCutOnRandomPlacements) {
  std::mt19937 random(5);
  for (int round = 0; round < 4000; ++round) {
    const int ep_size = 1 + static_cast<int>(random() % 10);
    const int slots_per_rank = 1 + static_cast<int>(random() % 4);
    const int num_slots = ep_size * slots_per_rank;
    const int num_experts = 1 + static_cast<int>(random() % static_cast<unsigned>(num_slots));
    const Placement placement = random_placement(num_experts, ep_size, slots_per_rank, random);
    SCOPED_TRACE(testing::Message() << "round " << round);
    ASSERT_NO_FATAL_FAILURE(check_optimal(placement, random_load(num_experts, round % 4, random)));
  }
}

// Replicas placed consecutively, `replicas` slots of each rank: chains and rings of ranks.
Placement ring_placement(int ep_size, int replicas, std::mt19937& random) {
  Placement placement{ep_size, ep_size, {}};
  for (int rank = 0; rank < ep_size; ++rank) {
    placement.slot_to_expert.push_back(rank);
    placement.slot_to_expert.push_back((rank + 1) % ep_size);
    for (int i = 2; i < replicas; ++i) {
      placement.slot_to_expert.push_back(rank);
    }
    placement.slot_to_expert.push_back(placement.num_experts++);
  }
  // Break the ring at times.
  for (size_t slot = 1; slot < placement.slot_to_expert.size();
       slot += placement.slots_per_rank()) {
    if (random() % 8 == 0) placement.slot_to_expert[slot] = placement.num_experts - 1;
  }
  return placement;
}

TEST(Resplit, ReachesTheMinimumCutOnRingsAndChains) {
  std::mt19937 random(6);
  for (int round = 0; round < 2000; ++round) {
    const int ep_size = 2 + static_cast<int>(random() % 9);
    const Placement placement = ring_placement(ep_size, 2 + round / 4 % 2, random);
    SCOPED_TRACE(testing::Message() << "round " << round);
    ASSERT_NO_FATAL_FAILURE(
        check_optimal(placement, random_load(placement.num_experts, round % 4, random)));
  }
}

TEST(Resplit, BalancesARingPerfectlyWithoutIdleReplicas) {
  const Placement placement{6, 3, {0, 1, 3, 1, 2, 4, 2, 0, 5}};
  const std::vector<double> load = {10, 10, 10, 4, 2, 0};
  Resplitter resplitter(placement);
  Shares shares(9);
  EXPECT_DOUBLE_EQ(resplitter.resplit(load, shares), 12.0);
  EXPECT_THAT(rank_loads(placement, load, shares),
              ElementsAre(DoubleNear(12, 1e-12), DoubleNear(12, 1e-12), DoubleNear(12, 1e-12)));
  EXPECT_THAT(resplitter.bottleneck_ranks(), IsEmpty());
  EXPECT_GT(*std::min_element(shares.begin(), shares.end()), 0.1);
}

TEST(Resplit, ReportsTheBottleneckRanks) {
  // Ranks 1 and 2 share expert 1 only; nothing of their 18 tokens can leave.
  const Placement placement{6, 4, {0, 5, 1, 2, 1, 3, 0, 4}};
  const std::vector<double> load = {3, 8, 4, 6, 1, 1};
  Resplitter resplitter(placement);
  Shares shares(8);
  EXPECT_DOUBLE_EQ(resplitter.resplit(load, shares), 9.0);
  EXPECT_THAT(resplitter.bottleneck_ranks(), ElementsAre(1, 2));
  // A later load for which the placement is right.
  EXPECT_DOUBLE_EQ(resplitter.resplit(std::vector<double>{6, 4, 2, 2, 1, 1}, shares), 4.0);
  EXPECT_THAT(resplitter.bottleneck_ranks(), IsEmpty());
}

TEST(Resplit, EqualPartsWithoutLoadAndOnOneRank) {
  const Placement placement{3, 2, {0, 0, 1, 0, 2, 2}};
  EXPECT_THAT(resplit(placement, std::vector<double>{0, 0, 0}),
              ElementsAre(1.0 / 3, 1.0 / 3, 1, 1.0 / 3, 0.5, 0.5));
  EXPECT_THAT(resplit(placement, std::vector<double>{8, 2, 6}),
              ElementsAre(0.375, 0.375, 1, 0.25, 0.5, 0.5));
}

TEST(Resplit, ResetEqualsANewResplitter) {
  std::mt19937 random(8);
  Resplitter reused;
  for (int round = 0; round < 300; ++round) {
    const int ep_size = 1 + static_cast<int>(random() % 8);
    const int num_experts = 1 + static_cast<int>(random() % static_cast<unsigned>(3 * ep_size));
    const Placement placement = random_placement(num_experts, ep_size, 3, random);
    const std::vector<double> load = random_load(num_experts, round % 4, random);
    reused.reset(placement);
    ASSERT_THAT(reused.bottleneck_ranks(), IsEmpty());
    Shares shares(placement.slot_to_expert.size());
    reused.resplit(load, shares);
    ASSERT_EQ(shares, resplit(placement, load)) << "round " << round;
  }
}

// Any cut gives a bound, so on sizes where not all can be tried, the one returned proves both.
TEST(Resplit, IsProvenOptimalOnLargePlacements) {
  std::mt19937 random(7);
  for (int round = 0; round < 16; ++round) {  // each size with each kind of load
    const int num_experts = 4096 >> (round % 4), ep_size = 1024 >> (round % 4);
    const Placement placement = random_placement(num_experts, ep_size, 5, random);
    const std::vector<double> load = random_load(num_experts, round / 4, random);
    Resplitter resplitter(placement);
    Shares shares(placement.slot_to_expert.size());
    const double max_load = resplitter.resplit(load, shares);
    ASSERT_NO_FATAL_FAILURE(check_shares(placement, load, shares, max_load));
    std::vector<bool> inside(static_cast<size_t>(ep_size), resplitter.bottleneck_ranks().empty());
    for (int rank : resplitter.bottleneck_ranks()) inside[static_cast<size_t>(rank)] = true;
    std::vector<bool> leaves(load.size(), false);
    for (int slot = 0; slot < placement.num_slots(); ++slot) {
      if (inside[static_cast<size_t>(placement.rank_of_slot(slot))]) continue;
      leaves[static_cast<size_t>(placement.slot_to_expert[static_cast<size_t>(slot)])] = true;
    }
    double forced = 0;
    for (size_t e = 0; e < load.size(); ++e) forced += leaves[e] ? 0 : load[e];
    const auto size = std::count(inside.begin(), inside.end(), true);
    EXPECT_NEAR(forced / static_cast<double>(size), max_load, 1e-10 * max_load) << round;
  }
}

// No number lies between such loads: a level grows by the next one, or the search has no end.
TEST(Resplit, EndsForTheSmallestPositiveLoad) {
  const Placement placement{3, 3, {0, 1, 0, 2, 0, 1}};
  const double min = std::numeric_limits<double>::denorm_min();
  const std::vector<double> load = {min, 0, 0};
  Shares shares(placement.slot_to_expert.size());
  EXPECT_LE(Resplitter(placement).resplit(load, shares), min);
  EXPECT_TRUE(check_shares(placement, shares).ok());
}

}  // namespace
}  // namespace wideep::balance
