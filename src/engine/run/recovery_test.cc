// SPDX-License-Identifier: Apache-2.0
#include "run/recovery.h"

#include <gtest/gtest.h>

namespace wideep::run {
namespace {

// Attention data parallelism with experts over `ranks` ranks, one MoE layer per placement.
RunPlan plan_of(int ranks, const std::vector<balance::Placement>& layers) {
  parallel::ParallelSizes sizes;
  sizes.tp = ranks;
  sizes.moe_ep = ranks;
  RunPlan plan{.model = {}, .mapping = *parallel::Mapping::create(sizes)};
  plan.ranks_of_nodes = {ranks};
  for (size_t i = 0; i < layers.size(); ++i) {
    plan.model.placement.layers[static_cast<int>(i)] = layers[i];
  }
  plan.dispatch = {.ep_size = ranks,
                   .num_experts = layers[0].num_experts,
                   .slots_per_rank = layers[0].slots_per_rank()};
  return plan;
}

const weights::ExpertShape kShape{.hidden = 64, .intermediate = 64};

TEST(RecoveryForecast, WithoutReplicasTheOthersNeedMoreSlots) {
  const RunPlan plan = plan_of(4, {{8, 4, {0, 1, 2, 3, 4, 5, 6, 7}}});
  const RecoveryForecast forecast = forecast_recovery(plan, kShape);
  EXPECT_TRUE(forecast.is_elastic);
  EXPECT_FALSE(forecast.has_pool);
  EXPECT_EQ(forecast.max_lost_experts, 2);
  EXPECT_EQ(forecast.slots_before, 2);
  EXPECT_EQ(forecast.slots_after, 3);
  const uint64_t record = kShape.record_bytes();
  EXPECT_EQ(forecast.slot_bytes_before, 8 * record);
  EXPECT_EQ(forecast.slot_bytes_after, 9 * record);
  EXPECT_EQ(forecast.lost_bytes, 2 * record);
  EXPECT_EQ(forecast.pool_bytes, 8 * record);
  EXPECT_EQ(forecast.slots_without_loss, 16);
  EXPECT_EQ(forecast.replica_bytes, 8 * record);
}

TEST(RecoveryForecast, AnExpertOnTwoRanksIsNotLost) {
  const RunPlan plan = plan_of(2, {{3, 2, {0, 1, 1, 2}}, {3, 2, {0, 1, 2, 2}}});
  const RecoveryForecast forecast = forecast_recovery(plan, kShape);
  EXPECT_EQ(forecast.max_lost_experts, 2);  // 0 and 1 of the second layer
  EXPECT_EQ(forecast.lost_bytes, 3 * kShape.record_bytes());
}

TEST(RecoveryForecast, WithANodeAllItsRanksAreLost) {
  RunPlan plan = plan_of(4, {{8, 4, {0, 1, 2, 3, 4, 5, 6, 7}}});
  EXPECT_EQ(forecast_recovery(plan, kShape).num_nodes, 1);
  plan.kept_nodes = transport::NodeMap::even(4, 3);  // 2, 1 and 1 ranks
  RecoveryForecast forecast = forecast_recovery(plan, kShape);
  EXPECT_EQ(forecast.num_nodes, 3);
  EXPECT_EQ(forecast.ranks_after_node, 3);
  EXPECT_EQ(forecast.slots_after_node, 3);
  EXPECT_EQ(forecast.max_experts_lost_with_node, 2);
  plan.kept_nodes = transport::NodeMap::even(4, 2);
  forecast = forecast_recovery(plan, kShape);
  EXPECT_EQ(forecast.ranks_after_node, 2);
  EXPECT_EQ(forecast.slots_after_node, 4);
  EXPECT_EQ(forecast.slot_bytes_after_node, 8 * kShape.record_bytes());
  EXPECT_EQ(forecast.max_experts_lost_with_node, 4);
}

}  // namespace
}  // namespace wideep::run
