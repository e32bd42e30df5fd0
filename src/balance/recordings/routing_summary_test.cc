// SPDX-License-Identifier: Apache-2.0
#include "recordings/routing_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::recordings {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

// Layer 0 is uneven, layer 2 even. Received pairs by iteration:
//   layer 0: [6, 2], [2, 0], [0, 0]      layer 2: [4, 4], [1, 1], [0, 0]
RoutingLog two_layers() {
  RoutingLog log;
  log.ep_size = 2;
  log.num_experts = 2;
  log.num_slots = 2;
  log.top_k = 1;
  log.layers = {0, 2};
  const auto iteration = [](int index, int64_t prompt, int64_t generated) {
    return RoutingLog::Iteration{.iteration = index,
                                 .prompt_tokens = prompt,
                                 .generated_tokens = generated,
                                 .sent = {},
                                 .counts = {},
                                 .critical_path_us = {1500, 250}};
  };
  log.iterations = {iteration(0, 8, 0), iteration(1, 0, 2), iteration(2, 0, 0)};
  log.iterations[0].sent = {{{4, 0}, {2, 2}}, {{2, 2}, {2, 2}}};
  log.iterations[1].sent = {{{1, 0}, {1, 0}}, {{1, 0}, {0, 1}}};
  log.iterations[2].sent = {{{0, 0}, {0, 0}}, {{0, 0}, {0, 0}}};
  for (auto& each : log.iterations) each.counts = each.sent;  // expert i sits on rank i
  return log;
}

TEST(RoutingSummary, AddsWhatEachRankReceived) {
  const RoutingLog log = two_layers();
  EXPECT_THAT(received_pairs(log.iterations[0], 0), ElementsAre(6, 2));
  EXPECT_THAT(received_pairs(log.iterations[0], 1), ElementsAre(4, 4));
  EXPECT_THAT(received_pairs(log.iterations[1], 0), ElementsAre(2, 0));
}

TEST(RoutingSummary, EqualsTheImbalanceComputedByHand) {
  const RoutingLog log = two_layers();
  ASSERT_TRUE(check_routing_log(log).ok()) << check_routing_log(log).message();
  const RoutingSummary summary = summarize_routing(log);
  ASSERT_EQ(summary.layers.size(), 2u);
  // Iteration 0: 6 / 4 − 1 = 0.5; iteration 1: 2 / 1 − 1 = 1; iteration 2: nothing, 0.
  EXPECT_DOUBLE_EQ(summary.layers[0].average, 0.5);
  EXPECT_THAT(summary.layers[0].prompt, Optional(0.5));
  EXPECT_THAT(summary.layers[0].generation, Optional(0.5));  // (1 + 0) / 2
  EXPECT_DOUBLE_EQ(summary.layers[0].weighted, (6.0 + 2.0) / (4.0 + 1.0) - 1);
  EXPECT_DOUBLE_EQ(summary.layers[1].average, 0);
  EXPECT_DOUBLE_EQ(summary.layers[1].weighted, 0);
  EXPECT_DOUBLE_EQ(summary.mean.average, 0.25);
  EXPECT_DOUBLE_EQ(summary.mean.weighted, 0.3);
  EXPECT_THAT(summary.critical_path_ms, ElementsAre(4.5, 0.75));
  EXPECT_EQ(summary.prompt_tokens, 8);
  EXPECT_EQ(summary.generated_tokens, 2);
}

TEST(RoutingSummary, HasNoAverageOverNoIteration) {
  RoutingLog log = two_layers();
  log.iterations.resize(1);
  const RoutingSummary summary = summarize_routing(log);
  EXPECT_THAT(summary.mean.prompt, Optional(0.25));
  EXPECT_FALSE(summary.mean.generation.has_value());
  EXPECT_FALSE(summary.layers[0].generation.has_value());
}

}  // namespace
}  // namespace wideep::recordings
