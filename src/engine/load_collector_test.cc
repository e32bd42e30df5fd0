// SPDX-License-Identifier: Apache-2.0
#include "engine/load_collector.h"

#include <gtest/gtest.h>

namespace wideep::engine {
namespace {

// Two ranks and one MoE layer; times in ms.
IterationRecord record(int64_t iteration, std::vector<int32_t> sent, int other_ms, int experts_ms,
                       int tail_ms) {
  IterationRecord result;
  result.iteration = iteration;
  result.prompt_tokens = 3;
  result.generated_tokens = 1;
  result.tail_cpu_ns = tail_ms * 1'000'000;
  result.layers.push_back({.other_cpu_ns = other_ms * 1'000'000,
                           .experts_cpu_ns = experts_ms * 1'000'000,
                           .sent = std::move(sent),
                           .counts = {1, 2}});
  return result;
}

TEST(LoadCollector, SumsReceiversAndTakesTheSlowestRankOfEachStep) {
  LoadCollector collector(2, {5}, true);
  // Iteration 0: ranks receive 1 + 3 = 4 and 2 + 6 = 8, mean 6, ratio 1/3.
  collector.add(0, record(0, {1, 2}, 10, 4, 1));
  collector.add(1, record(0, {3, 6}, 20, 2, 3));
  // Iteration 1 arrives out of order: 5 and 5, ratio 0.
  collector.add(1, record(1, {5, 0}, 1, 1, 1));
  collector.add(0, record(1, {0, 5}, 2, 2, 2));
  const LoadTotals totals = collector.totals();
  EXPECT_EQ(totals.num_iterations, 2);
  EXPECT_EQ(totals.prompt_tokens, 12);
  EXPECT_EQ(totals.generated_tokens, 4);
  EXPECT_EQ(totals.layers[0].layer, 5);
  EXPECT_EQ(totals.layers[0].received, (std::vector<int64_t>{9, 13}));
  EXPECT_NEAR(totals.layers[0].imbalance_ratio, (1.0 / 3 + 0) / 2, 1e-12);
  EXPECT_NEAR(totals.imbalance_ratio(), 1.0 / 6, 1e-12);
  EXPECT_NEAR(totals.critical_path_ms, (20 + 4 + 3) + (2 + 2 + 2), 1e-9);
  EXPECT_NEAR(totals.critical_path_experts_ms, 4 + 2, 1e-9);
  EXPECT_NEAR(totals.mean_rank_ms, (15 + 3 + 2) + (1.5 + 1.5 + 1.5), 1e-9);
  EXPECT_NEAR(totals.mean_experts_ms, 3 + 1.5, 1e-9);
  ASSERT_EQ(collector.log().size(), 2u);
  EXPECT_EQ(collector.log()[0].sent[0], (std::vector<std::vector<int32_t>>{{1, 2}, {3, 6}}));
  EXPECT_EQ(collector.log()[0].critical_path_us[0], 4000.0);
}

TEST(LoadCollector, AnIterationThatOneRankNeverReportedDoesNotCount) {
  LoadCollector collector(2, {5}, false);
  collector.add(0, record(0, {1, 1}, 1, 1, 1));
  EXPECT_EQ(collector.totals().num_iterations, 0);
}

TEST(IterationRecord, SurvivesThePipe) {
  const IterationRecord original = record(7, {1, -2, 3}, 4, 5, 6);
  EXPECT_EQ(decode_iteration(encode(original)), original);
}

}  // namespace
}  // namespace wideep::engine
