// SPDX-License-Identifier: Apache-2.0
//
// Recordings of a few iterations whose hits can be counted by hand.
#include "residency/hit_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "residency/lru_cache.h"

namespace wideep::residency {
namespace {

using ::testing::ElementsAre;

TEST(LruCache, TheOldestUseLeaves) {
  LruCache cache(4, 2);
  std::vector<bool> hits;
  for (const size_t record : {0, 1, 0, 2, 0, 1, 2}) hits.push_back(cache.use(record));
  EXPECT_THAT(hits, ElementsAre(false, false, true, false, true, false, false));
  LruCache none(2, 0);
  EXPECT_FALSE(none.use(1));
  EXPECT_FALSE(none.use(1));
}

// One layer of experts; each iteration names those that one token each chooses.
online::NextIteration iterations(int num_experts, std::vector<std::vector<int>> chosen) {
  return [num_experts, chosen = std::move(chosen),
          next = size_t{0}](online::Iteration* iteration) mutable {
    if (next == chosen.size()) return false;
    iteration->num_experts = num_experts;
    iteration->counts.assign(static_cast<size_t>(num_experts), 0);
    for (const int expert : chosen[next]) ++iteration->counts[static_cast<size_t>(expert)];
    iteration->num_tokens = static_cast<int64_t>(chosen[next].size());
    ++next;
    return true;
  };
}

TEST(HitRates, ByHand) {
  const RecordedIterations recorded{.num_layers = 1,
                                    .num_experts = 4,
                                    .learned = iterations(4, {{0}, {0}, {1}}),
                                    .judged = iterations(4, {{2}, {2, 2}, {0}, {3}})};
  const std::vector<BudgetHits> found = judge_iterations(recorded, std::vector<int>{1, 4}, {});
  ASSERT_EQ(found.size(), 2u);
  const auto rates = [](const BudgetHits& at) {
    return std::vector{at.fixed.rate(), at.oracle.rate(), at.lru->rate()};
  };
  EXPECT_THAT(rates(found[0]), ElementsAre(0.25, 0.5, 0.25));  // 0; 2; the second of 2
  EXPECT_THAT(rates(found[1]), ElementsAre(1.0, 1.0, 0.5));
  EXPECT_EQ(found[0].oracle.layers[0], (LayerHits{.reads = 4, .hits = 2, .num_records = 1}));
  EXPECT_EQ(found[1].wideep->rate(), 0.5);  // 2 and 3 are read once each
  EXPECT_EQ(found[1].wideep->layers[0], (LayerHits{.reads = 4, .hits = 2, .num_records = 4}));
}

TEST(HitRates, OfCountsAlone) {
  const balance::ModelLoad learned{.num_experts = 2, .layers = {1, 2}, .load = {{9, 1}, {2, 8}}};
  const balance::ModelLoad judged{.num_experts = 2, .layers = {1, 2}, .load = {{1, 2}, {3, 4}}};
  const std::vector<BudgetHits> found = judge_counts(learned, judged, std::vector<int>{1, 2});
  EXPECT_EQ(found[0].fixed.rate(), 0.1);
  EXPECT_EQ(found[0].oracle.rate(), 0.4);
  EXPECT_EQ(found[1].fixed.rate(), 0.5);
  EXPECT_EQ(found[1].oracle.rate(), 0.7);
  EXPECT_EQ(found[1].oracle.layers[1], (LayerHits{.reads = 7, .hits = 7, .num_records = 2}));
  EXPECT_FALSE(found[0].wideep || found[0].lru);
}

}  // namespace
}  // namespace wideep::residency
