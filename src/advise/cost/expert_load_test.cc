// SPDX-License-Identifier: Apache-2.0
//
// Closed forms are held against the slow way: 400 iterations of drawn tokens with different experts
// each, the header's sum slot by slot, every rank in place of the few that are looked at. Drawn
// cases may be 8 to 12 % off, which is the error of the approximation. A failure means that the
// predicted work of the busiest rank is of no load that tokens can make.
#include "cost/expert_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

namespace wideep::cost {
namespace {

// A load that falls as a power of the expert's number.
std::vector<double> skewed(int num_experts, double power) {
  std::vector<double> load(static_cast<size_t>(num_experts));
  for (size_t e = 0; e < load.size(); ++e) load[e] = std::pow(1.0 + static_cast<double>(e), -power);
  return load;
}

// Draws tokens that choose top_k different experts, and counts the rows of the busiest rank.
// load: [E], one slot for each expert, in order.
ExpertWork drawn(const std::vector<double>& load, int top_k, int num_ranks, int num_tokens,
                 int tile) {
  std::mt19937_64 random(7);
  std::discrete_distribution<int> choose(load.begin(), load.end());
  constexpr int kRounds = 400;
  ExpertWork mean;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> rows(load.size(), 0.0);
    for (int token = 0; token < num_tokens; ++token) {
      std::set<int> chosen;
      while (static_cast<int>(chosen.size()) < top_k) chosen.insert(choose(random));
      for (const int expert : chosen) rows[static_cast<size_t>(expert)] += 1.0;
    }
    const size_t each = rows.size() / static_cast<size_t>(num_ranks);
    ExpertWork busiest;
    for (size_t first = 0; first < rows.size(); first += each) {
      const ExpertWork work = expert_work(std::span(rows).subspan(first, each), tile);
      if (work.rows > busiest.rows) busiest = work;
    }
    mean.experts += busiest.experts / kRounds;
    mean.rows += busiest.rows / kRounds;
    mean.tiled_rows += busiest.tiled_rows / kRounds;
  }
  return mean;
}

PlacedLayer in_order(const std::vector<double>& load, int top_k, int num_ranks) {
  const double all = std::reduce(load.begin(), load.end());
  std::vector<double> choices;
  for (const double each : load) choices.push_back(each / all * top_k);
  return {num_ranks, choices};
}

struct Case {
  double power;
  int num_ranks, num_tokens, tile;
};

class BusiestWork : public testing::TestWithParam<Case> {};

TEST_P(BusiestWork, IsThatOfDrawnTokens) {
  const auto [power, num_ranks, num_tokens, tile] = GetParam();
  const std::vector<double> load = skewed(64, power);
  const ExpertWork found = busiest_work(in_order(load, 4, num_ranks), num_tokens, tile);
  const ExpertWork expected = drawn(load, 4, num_ranks, num_tokens, tile);
  EXPECT_NEAR(found.rows / expected.rows, 1.0, 0.08);
  EXPECT_NEAR(found.experts / expected.experts, 1.0, 0.08);
  EXPECT_NEAR(found.tiled_rows / expected.tiled_rows, 1.0, 0.12);
}

INSTANTIATE_TEST_SUITE_P(Loads, BusiestWork,
                         testing::Values(Case{0.0, 1, 16, 1}, Case{0.0, 4, 16, 1},
                                         Case{0.0, 16, 64, 1}, Case{0.0, 8, 256, 16},
                                         Case{0.3, 8, 64, 1}, Case{0.3, 4, 512, 16},
                                         Case{0.2, 16, 1024, 64}));

// As the header says, slot by slot.
TEST(MeanWork, IsTheSumOverSlots) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> draw(0.0, 1.0);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> choices;
    for (int slot = 0; slot < 16; ++slot) choices.push_back(std::pow(draw(random), 4.0));
    const PlacedLayer layer(4, choices);
    const double tokens = std::pow(10.0, 5.0 * draw(random));
    double reached = 0.0, rows = 0.0;
    for (const double choice : choices) {
      reached += 1.0 - std::pow(1.0 - choice, tokens);
      rows += tokens * choice;
    }
    const ExpertWork work = mean_work(layer, tokens, 1);
    EXPECT_NEAR(work.experts * 4, reached, 1e-9 * reached);
    EXPECT_NEAR(work.rows * 4, rows, 1e-9 * rows);
    double all = 0.0;
    for (const ExpertWork& rank : work_of_ranks(layer, tokens, 1)) all += rank.rows;
    EXPECT_NEAR(all, rows, 1e-9 * rows);
  }
}

// Of two ranks one has more rows, all in one expert, and the other reads more experts.
TEST(SlowestTime, IsOfTheRankThatReadsMoreIfReadingRules) {
  const PlacedLayer layer(2, {1.0, 0.0, 0.0, 0.0, 0.2, 0.2, 0.2, 0.2});
  const Hardware hardware{.memory_bandwidth = 1e12, .peak = {{kernels::WeightFormat::kBf16, 1e14}}};
  const ExpertShape shape{.hidden = 1024, .intermediate = 512};
  const ProductKernel kernel;
  const auto of_rank = [&](size_t rank, double tokens) {
    return expert_time(hardware, kernel, shape, work_of_ranks(layer, tokens, 1)[rank]).seconds();
  };
  const auto slowest = [&](double tokens) {
    return slowest_time(hardware, kernel, shape, layer, tokens).seconds();
  };
  EXPECT_DOUBLE_EQ(slowest(20.0), of_rank(1, 20.0));
  EXPECT_GT(slowest(20.0), of_rank(0, 20.0));
  // With many rows computing rules.
  EXPECT_DOUBLE_EQ(slowest(1e6), of_rank(0, 1e6));
  EXPECT_GT(slowest(1e6), of_rank(1, 1e6));
}

// The slow way: every rank, and the one with the most rows with the chance of more.
TEST(SlowestTime, IsTheMostOfAllRanks) {
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> draw(0.0, 1.0);
  const Hardware hardware{.memory_bandwidth = 1e12, .peak = {{kernels::WeightFormat::kBf16, 1e14}}};
  const ExpertShape shape{.hidden = 1024, .intermediate = 512};
  const ProductKernel kernel{.row_traffic = 2.0, .tile = 8};
  int others = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<double> choices;
    for (int slot = 0; slot < 32; ++slot) choices.push_back(std::pow(draw(random), 6.0));
    const PlacedLayer layer(4, choices);
    const double tokens = std::pow(10.0, 4.0 * draw(random));
    const double busiest =
        expert_time(hardware, kernel, shape, busiest_work(layer, tokens, kernel.tile)).seconds();
    double max = busiest;
    for (const ExpertWork& work : work_of_ranks(layer, tokens, kernel.tile)) {
      max = std::max(max, expert_time(hardware, kernel, shape, work).seconds());
    }
    others += max > busiest;
    EXPECT_NEAR(slowest_time(hardware, kernel, shape, layer, tokens).seconds(), max, 1e-3 * max);
  }
  EXPECT_GT(others, 0);
}

TEST(PlacedLayer, HasAllChoicesOfAToken) {
  const std::vector<double> load = skewed(32, 0.8);
  for (const bool weighted : {false, true}) {
    const auto layer =
        place_layer(load, load, 4, {.num_experts = 32, .ep_size = 8, .num_slots = 40}, weighted);
    ASSERT_TRUE(layer.ok());
    EXPECT_EQ(layer->slots_per_rank(), 5);
    // The busiest expert would be chosen more than once by a token: it is chosen always.
    const double all = std::reduce(load.begin(), load.end());
    double expected = 0.0;
    for (const double each : load) expected += std::min(1.0, 4 * each / all);
    const std::vector<double>& choices = layer->choices();
    EXPECT_NEAR(std::reduce(choices.begin(), choices.end()), expected, 1e-9);
  }
}

TEST(PlacedLayer, ReplicasBalance) {
  const std::vector<double> load = skewed(32, 0.4);
  const auto imbalance = [&](int slots) {
    return imbalance_of(
        place_layer(load, load, 2, {.num_experts = 32, .ep_size = 8, .num_slots = slots}, true)
            .value());
  };
  EXPECT_LT(imbalance(40), imbalance(32));
  EXPECT_LT(imbalance(40), 0.01);
}

TEST(PlacedLayer, AShapeThatNoPlannerServesIsAnError) {
  const std::vector<double> load = skewed(8, 0.0);
  EXPECT_FALSE(
      place_layer(load, load, 2, {.num_experts = 8, .ep_size = 3, .num_slots = 8}, true).ok());
}

}  // namespace
}  // namespace wideep::cost
