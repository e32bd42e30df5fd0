// SPDX-License-Identifier: Apache-2.0
//
// How a record is split into parts is held against one made by hand: parts must add up to what was
// recorded. Predictions are held against what more ranks must change, and must not. One run of
// sixteen ranks on however few cores shows that tokens follow the load, and that the whole takes no
// less than the processor time of all ranks: a part that is missing there is missing from every
// prediction for more ranks.
#include "measure/predict/engine_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/machine.h"

namespace wideep::measure {
namespace {

using engine::IterationRecord;

// A load that is as uneven as recorded ones: a tenth of the experts have half of the tokens.
balance::ModelLoad uneven_load(const model::ModelConfig& config) {
  balance::ModelLoad recorded{.num_experts = config.routing.num_experts, .layers = {3, 4, 5}};
  for (int layer = 0; layer < 3; ++layer) {
    std::vector<double>& load = recorded.load.emplace_back();
    for (int e = 0; e < recorded.num_experts; ++e) {
      load.push_back((e + layer) % 10 == 0 ? 9000.0 : 1000.0);
    }
  }
  return recorded;
}

TEST(ScaledLoad, SpreadsOverTheLayersThatHaveTokens) {
  const model::ModelConfig config = scaled_model();
  balance::ModelLoad recorded = uneven_load(config);
  recorded.layers.insert(recorded.layers.begin(), 0);
  recorded.load.insert(recorded.load.begin(), std::vector<double>(256, 0.0));  // dense
  const balance::ModelLoad load = scaled_load(config, recorded);
  EXPECT_THAT(load.layers, testing::ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(load.load, testing::ElementsAre(recorded.load[1], recorded.load[1], recorded.load[2],
                                              recorded.load[3]));
}

TEST(PartsOfRank, AddUpToWhatWasRecorded) {
  const model::ModelConfig config = scaled_model();
  IterationRecord record{.tail_cpu_ns = 7'000, .agree_cpu_ns = 3'000};
  record.layers.resize(4, {.other_cpu_ns = 100'000,
                           .experts_cpu_ns = 40'000,
                           .shared_cpu_ns = 20'000,
                           .exchange_cpu_ns = 30'000});
  record.layers[0].other_cpu_ns = 190'000;  // with the embedding and the dense layer
  const RankParts parts = parts_of_rank(record, config);
  EXPECT_NEAR(parts.attention, 5 * 50e-6, 1e-12);
  EXPECT_NEAR(parts.dense, 4 * 20e-6 + 40e-6 + 7e-6, 1e-12);
  EXPECT_NEAR(parts.experts, 4 * 40e-6, 1e-12);
  EXPECT_NEAR(parts.exchange, 4 * 30e-6, 1e-12);
  EXPECT_NEAR(parts.agree, 3e-6, 1e-12);
  EXPECT_NEAR(parts.all(), (190 + 3 * 100 + 4 * 40 + 7 + 3) * 1e-6, 1e-12);
}

TEST(PredictCompute, FewerExpertsOfARankTakeLessAndNothingElseDoes) {
  const model::ModelConfig config = scaled_model();
  const balance::ModelLoad load = scaled_load(config, uneven_load(config));
  const cost::Hardware machine{.name = "machine",
                               .devices_per_node = 2,
                               .divisible = true,
                               .memory_bandwidth = 1e10,
                               .node_bandwidth = 2e10,
                               .peak = {{kernels::WeightFormat::kBf16, 1e11}},
                               .node_link = {.latency = 1e-6, .bandwidth = 1e10},
                               .node_link_ranks = 1 << 16};
  const auto few = predict_compute(machine, config, load, {.num_ranks = 4});
  const auto many = predict_compute(machine, config, load, {.num_ranks = 64});
  ASSERT_TRUE(few.ok() && many.ok());
  EXPECT_LT(many->mean.experts, 0.7 * few->mean.experts);
  EXPECT_DOUBLE_EQ(many->mean.attention, few->mean.attention);
  EXPECT_GT(many->busiest_experts, 1.05 * many->mean.experts);
}

// Sixteen ranks of the engine on however few cores there are.
TEST(EngineScale, RunsSixteenRanksWhoseTokensFollowTheLoad) {
  const model::ModelConfig config = scaled_model();
  const balance::ModelLoad load = scaled_load(config, uneven_load(config));
  run::RunView view;
  const auto cost =
      run_engine_scale(config, load, {.num_ranks = 16, .batch = 4, .repetitions = 1}, view);
  ASSERT_TRUE(cost.ok()) << cost.status().message();
  EXPECT_EQ(cost->num_ranks, 16);
  EXPECT_EQ(cost->num_slots, 288);
  EXPECT_EQ(cost->iterations, 13);
  // Of 4 × 16 × 13 tokens in each layer; tokens that choose all experts alike are at 0.4.
  EXPECT_LT(cost->distance, 0.25);
  EXPECT_LT(cost->imbalance, 1.0);
  const RankParts& mean = cost->mean;
  for (const double part : {mean.attention, mean.dense, mean.experts, mean.exchange, mean.agree}) {
    EXPECT_GT(part, 0.0);
  }
  EXPECT_GT(cost->busiest, mean.all());
  EXPECT_GT(cost->busiest_experts, mean.experts);
  // Sixteen ranks on the cores take as long as their work at least, all cores busy.
  const int cores = base::read_machine().usable_cores();
  EXPECT_GT(cost->seconds * std::min(cores, 16), 0.8 * 16 * mean.all());
}

// Two thirds of the rows are for the first rank's experts.
TEST(EngineScale, RanksOfExpertsInTheirOrderAreLessEven) {
  const model::ModelConfig config = scaled_model();
  balance::ModelLoad load = scaled_load(config, uneven_load(config));
  for (std::vector<double>& layer : load.load) {
    for (size_t e = 0; e < layer.size(); ++e) layer[e] = e < 16 ? 9000.0 : 1000.0;
  }
  run::RunView view;
  EngineScaleOptions options{.num_ranks = 2, .spare_slots = 2, .batch = 8, .repetitions = 1};
  const auto planned = run_engine_scale(config, load, options, view);
  options.spare_slots = 0;
  options.planned = false;
  const auto in_order = run_engine_scale(config, load, options, view);
  ASSERT_TRUE(planned.ok() && in_order.ok());
  EXPECT_EQ(in_order->num_slots, 256);
  EXPECT_GT(in_order->imbalance, 0.15);
  EXPECT_LT(planned->imbalance, 0.5 * in_order->imbalance);
}

TEST(EngineScale, AShapeThatNoPlannerServesIsAnError) {
  const model::ModelConfig config = scaled_model();
  run::RunView view;
  const auto cost = run_engine_scale(config, scaled_load(config, uneven_load(config)),
                                     {.num_ranks = 2, .spare_slots = 600}, view);
  ASSERT_FALSE(cost.ok());
  EXPECT_THAT(cost.status().message(), testing::HasSubstr("slots"));
}

}  // namespace
}  // namespace wideep::measure
