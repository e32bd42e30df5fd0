// SPDX-License-Identifier: Apache-2.0
#include "online/move_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "balance/moves.h"

namespace wideep::online {
namespace {

using balance::Placement;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

constexpr double kAll = std::numeric_limits<double>::infinity();

// One layer's samples, newest last.
SampleSet samples_of(const std::vector<std::vector<int64_t>>& counts, int num_ranks,
                     double drift_margin = 0.0) {
  const int num_experts = static_cast<int>(counts[0].size());
  LoadWindow window({.num_layers = 1, .num_experts = num_experts, .top_k = 1},
                    {.sample_tokens = 1, .num_samples = 8});
  for (const auto& sample : counts) {
    window.add(0, sample);
    window.end_iteration();
  }
  SampleSet samples(num_experts, 8);
  samples.assign(window, 0, num_ranks, drift_margin);
  return samples;
}

TEST(SampleSet, ScalesSamplesAndPrefersTheNewest) {
  const SampleSet samples = samples_of({{30, 10}, {0, 8}, {6, 0}}, 2);
  ASSERT_EQ(samples.size(), 3);
  EXPECT_THAT(samples.load(0), ElementsAre(2, 0));
  EXPECT_THAT(samples.load(1), ElementsAre(0, 2));
  EXPECT_THAT(samples.load(2), ElementsAre(1.5, 0.5));
  // Half of the weight is by similarity, which is all on the newest sample here; the other half is
  // equal.
  EXPECT_NEAR(samples.weight(0), 0.5 + 0.5 / 3, 2e-3);
  EXPECT_NEAR(samples.weight(1), 0.5 / 3, 1e-9);
  EXPECT_NEAR(samples.weight(0) + samples.weight(1) + samples.weight(2), 1.0, 1e-12);
  EXPECT_NEAR(samples.expected()[0] + samples.expected()[1], 2.0, 1e-12);
}

TEST(SampleSet, TheMarginEnlargesDeviations) {
  const SampleSet samples = samples_of({{4, 4, 2}, {2, 6, 2}}, 1, 0.5);
  // Around the mean (0.3, 0.5, 0.2).
  EXPECT_THAT(samples.load(0), ElementsAre(DoubleNear(0.15, 1e-12), DoubleNear(0.65, 1e-12),
                                           DoubleNear(0.2, 1e-12)));
}

TEST(SampleSet, LeavesOutSamplesWithoutTokensOfTheLayer) {
  LoadWindow window({.num_layers = 2, .num_experts = 2, .top_k = 1}, {.sample_tokens = 1});
  window.add(1, std::vector<int64_t>{4, 4});
  window.end_iteration();
  SampleSet samples(2, 16);
  samples.assign(window, 0, 2, 0.0);
  EXPECT_EQ(samples.size(), 0);
}

// Two ranks with experts {0, 1} and {0, 2}.
const Placement kTwoRanks{3, 2, {0, 1, 0, 2}};

TEST(PlacementJudge, SharesOfEachSample) {
  const SampleSet samples = samples_of({{2, 3, 1}, {2, 1, 3}, {0, 3, 1}}, 2);
  PlacementJudge judge(Sharing::kEachSample, 3, 2);
  // Expert 0 balances the first two; in the newest there is nothing to share: 3 of 4 on one rank.
  EXPECT_NEAR(judge.imbalance(samples, kTwoRanks, kAll), 0.5 * samples.weight(0), 1e-12);
  std::vector<PlacementJudge::Sample> found;
  EXPECT_NEAR(judge.examine(samples, kTwoRanks, &found), 0.5 * samples.weight(0), 1e-12);
  EXPECT_EQ(found[1].num_hot, 0);
  EXPECT_EQ(found[0].num_hot, 1);
  EXPECT_THAT(found[0].hot, ElementsAre(1, 0));
}

TEST(PlacementJudge, EqualSharesAndThoseOfTheExpectedLoad) {
  const SampleSet samples = samples_of({{2, 3, 1}}, 2);
  PlacementJudge equal(Sharing::kEqual, 3, 2);
  EXPECT_NEAR(equal.imbalance(samples, kTwoRanks, kAll), 1.0 / 3, 1e-12);
  PlacementJudge expected(Sharing::kExpectedLoad, 3, 2);
  EXPECT_NEAR(expected.imbalance(samples, kTwoRanks, kAll), 0.0, 1e-12);
  const SampleSet two = samples_of({{2, 3, 1}, {2, 1, 3}}, 2);
  EXPECT_GT(expected.imbalance(two, kTwoRanks, kAll), 0.1);
}

SearchGoal goal(double price, int max_moves = 100) {
  return {.tolerance = 1e-6, .price = price, .max_moves = max_moves};
}

TEST(MoveSearch, ReachesBalanceWithOneMove) {
  // Rank 0 holds the two heavy experts 1 and 2; a replica of either on rank 1 frees it.
  const SampleSet samples = samples_of({{1, 4, 4, 1}}, 2);
  PlacementJudge judge(Sharing::kEachSample, 4, 2);
  MoveSearch search({.num_experts = 4, .ep_size = 2, .num_slots = 6}, &judge);
  const Placement before{4, 2, {1, 2, 0, 0, 3, balance::kUnusedSlot}};
  Placement placement = before;
  EXPECT_NEAR(search.run(samples, goal(0.01), &placement), 0.0, 1e-9);
  ASSERT_TRUE(balance::check_placement(placement).ok());
  EXPECT_EQ(balance::count_moves(before, placement), 1);
}

TEST(MoveSearch, ExchangesWhereThereIsNoSpareSlot) {
  const SampleSet samples = samples_of({{4, 4, 1, 1}}, 2);
  PlacementJudge judge(Sharing::kEachSample, 4, 2);
  MoveSearch search({.num_experts = 4, .ep_size = 2, .num_slots = 4}, &judge);
  Placement placement{4, 2, {0, 1, 2, 3}};
  const Placement before = placement;
  // 0.6 for two moves.
  EXPECT_NEAR(search.run(samples, goal(0.31), &placement), 0.6, 1e-9);
  EXPECT_EQ(placement, before);
  EXPECT_NEAR(search.run(samples, goal(0.01, 1), &placement), 0.6, 1e-9);
  EXPECT_EQ(placement, before);
  EXPECT_NEAR(search.run(samples, goal(0.29), &placement), 0.0, 1e-9);
  EXPECT_TRUE(balance::check_placement(placement).ok());
}

TEST(MoveSearch, AMoveMustNotWorsenOtherSamples) {
  // Experts in pairs: what balances one sample alone is the worst in the other.
  const SampleSet samples = samples_of({{4, 1, 4, 1}, {4, 4, 1, 1}}, 2);
  PlacementJudge judge(Sharing::kEachSample, 4, 2);
  MoveSearch search({.num_experts = 4, .ep_size = 2, .num_slots = 4}, &judge);
  Placement placement{4, 2, {0, 1, 2, 3}};
  search.run(samples, goal(0.001), &placement);
  // 0 and 3 together are half of the load in both.
  const int rank_of_0 =
      placement.slot_to_expert[0] == 0 || placement.slot_to_expert[1] == 0 ? 0 : 1;
  const auto own = placement.experts_of_rank(rank_of_0);
  EXPECT_TRUE(own[0] == 3 || own[1] == 3);
}

}  // namespace
}  // namespace wideep::online
