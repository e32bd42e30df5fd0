// SPDX-License-Identifier: Apache-2.0
#include "ep/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace wideep::ep {
namespace {

DispatchShape shape_of(int ep_size, int top_k) {
  return {.ep_size = ep_size,
          .num_experts = 256,
          .slots_per_rank = 256 / ep_size,
          .top_k = top_k,
          .row_bytes = 14336};
}

// Monte Carlo estimate of the number of ranks other than 0 that have a slot of a token.
double drawn_ranks(const DispatchShape& shape) {
  constexpr int kTokens = 4000;
  std::mt19937 rng(3);
  std::vector<int> slots(static_cast<size_t>(shape.ep_size * shape.slots_per_rank));
  std::iota(slots.begin(), slots.end(), 0);
  double sum = 0.0;
  for (int token = 0; token < kTokens; ++token) {
    std::set<int> ranks;
    for (int k = 0; k < shape.top_k; ++k) {
      std::swap(slots[k], slots[k + rng() % (slots.size() - k)]);
      ranks.insert(slots[k] / shape.slots_per_rank);
    }
    ranks.erase(0);
    sum += static_cast<double>(ranks.size());
  }
  return sum / kTokens;
}

TEST(Strategy, DispatchSendsARowToEachRankThatHasASlot) {
  for (const int ep_size : {2, 4, 8, 32}) {
    for (const int top_k : {1, 2, 8}) {
      const DispatchShape shape = shape_of(ep_size, top_k);
      const double per_row = 14336.0 + 4.0 * top_k;
      EXPECT_NEAR(choose_strategy(shape).dispatch_bytes / per_row, drawn_ranks(shape),
                  0.03 * ep_size / 8 + 0.03)
          << ep_size << " ranks, top " << top_k;
    }
  }
}

TEST(Strategy, ChoosesTheOneWithFewerBytes) {
  EXPECT_EQ(choose_strategy(shape_of(1, 8)).strategy, Strategy::kDispatch);
  EXPECT_EQ(choose_strategy(shape_of(2, 8)).strategy,
            Strategy::kDispatch);  // equal rows, more lists
  EXPECT_EQ(choose_strategy(shape_of(8, 8)).strategy, Strategy::kAllGather);
  EXPECT_EQ(choose_strategy(shape_of(8, 1)).strategy, Strategy::kDispatch);
  DispatchShape two_nodes = shape_of(8, 8);
  two_nodes.num_nodes = 2;
  EXPECT_EQ(choose_strategy(two_nodes).strategy, Strategy::kDispatch);
  DispatchShape small_rows = shape_of(64, 2);
  small_rows.row_bytes = 16;
  EXPECT_EQ(choose_strategy(small_rows).strategy, Strategy::kDispatch);  // lists dominate
}

TEST(Strategy, AGivenOneIsKeptAndBothAreCounted) {
  for (const Strategy strategy : {Strategy::kDispatch, Strategy::kAllGather}) {
    DispatchShape shape = shape_of(8, 8);
    shape.strategy = strategy;
    const StrategyChoice given = strategy_of(shape);
    EXPECT_EQ(given.strategy, strategy);
    EXPECT_EQ(given.bytes(), strategy == Strategy::kAllGather
                                 ? choose_strategy(shape).gather_bytes
                                 : choose_strategy(shape).dispatch_bytes);
    EXPECT_EQ(choose_strategy(shape).strategy, Strategy::kAllGather);
  }
}

TEST(Strategy, ReasonHasTheBytes) {
  EXPECT_THAT(choose_strategy(shape_of(8, 8)).reason(), testing::HasSubstr("all-gather: 14560"));
  EXPECT_THAT(choose_strategy(shape_of(2, 8)).reason(), testing::HasSubstr("dispatch: 14"));
}

}  // namespace
}  // namespace wideep::ep
