// SPDX-License-Identifier: Apache-2.0
//
// The formulas of expert_cost.h and exchange_cost.h, by hand, and fit.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cost/exchange_cost.h"
#include "cost/expert_cost.h"
#include "cost/fit.h"

namespace wideep::cost {
namespace {

Hardware machine() {
  return {.name = "machine",
          .devices_per_node = 4,
          .memory_bandwidth = 1e12,
          .peak = {{kernels::WeightFormat::kBf16, 1e14}},
          .node_link = {.latency = 1e-5, .bandwidth = 1e11},
          .node_link_ranks = 4,
          .network = {.latency = 3e-5, .bandwidth = 1e10}};
}

TEST(ExpertCost, CountsTilesOfEachExpert) {
  const std::vector<double> rows = {0.0, 0.25, 1.0, 16.0, 17.0};
  const ExpertWork work = expert_work(rows, 16);
  EXPECT_DOUBLE_EQ(work.experts, 3.25);
  EXPECT_DOUBLE_EQ(work.rows, 34.25);
  EXPECT_DOUBLE_EQ(work.tiled_rows, 0.25 * 16 + 16 + 16 + 32);
}

TEST(ExpertCost, IsTheSumOfItsParts) {
  const ExpertShape shape{.hidden = 1000, .intermediate = 100};
  EXPECT_DOUBLE_EQ(shape.bytes(), 3 * 1000 * 100 * 2.0);
  const ProductKernel kernel{
      .overhead = 1e-6, .memory = 0.5, .compute = 0.25, .row_traffic = 2.0, .tile = 1};
  const ExpertTime time =
      expert_time(machine(), kernel, shape, {.experts = 4.0, .rows = 10.0, .tiled_rows = 12.0});
  EXPECT_DOUBLE_EQ(time.bytes, 4 * 6e5 / 0.5e12);
  EXPECT_DOUBLE_EQ(time.compute, 2 * 3e5 * 12 / 0.25e14);
  EXPECT_DOUBLE_EQ(time.rows, 10 * 2000 * 2.0 / 1e12);
  EXPECT_NEAR(time.seconds(),
              1e-6 + std::cbrt(std::pow(time.bytes, 3) + std::pow(time.compute, 3)) + time.rows,
              1e-15);
}

TEST(ExchangeCost, NearRanksUseTheNodeFarOnesTheNetwork) {
  const Hardware hardware = machine();
  EXPECT_DOUBLE_EQ(rows_away(hardware, 4).node, 0.75);
  EXPECT_DOUBLE_EQ(rows_away(hardware, 4).network, 0.0);
  EXPECT_DOUBLE_EQ(rows_away(hardware, 16).node, 3.0 / 16);
  EXPECT_DOUBLE_EQ(rows_away(hardware, 16).network, 12.0 / 16);
  const ExchangeKernel kernel{.overhead = 1e-6, .latency = 2.0, .link = 0.5};
  const ExchangeWork node{.num_ranks = 4, .rows = 100, .row_bytes = 1000};
  EXPECT_DOUBLE_EQ(exchange_seconds(hardware, kernel, node),
                   1e-6 + 2e-5 + 1e5 * 0.75 / (1e11 * 0.5));
  const ExchangeWork nodes{.num_ranks = 16, .rows = 100, .row_bytes = 1000};
  EXPECT_DOUBLE_EQ(exchange_seconds(hardware, kernel, nodes),
                   1e-6 + 6e-5 + 1e5 * 0.75 / (1e10 * 0.5));
}

TEST(ExchangeCost, NodesOfCoresShareTheirCable) {
  Hardware hardware = machine();
  const ExchangeWork work{.num_ranks = 8, .rows = 100, .row_bytes = 1000};
  EXPECT_EQ(wire_seconds(hardware, work), 0.0);
  hardware.divisible = true;
  EXPECT_EQ(wire_seconds(hardware, work), 0.0);
  hardware.nodes = 4;  // two ranks each, which send three quarters of 2 × 100 rows elsewhere
  EXPECT_DOUBLE_EQ(wire_seconds(hardware, work), 3e-5 + 150 * 1000 / 1e10);
  hardware.nodes = 16;
  EXPECT_DOUBLE_EQ(wire_seconds(hardware, work), 3e-5 + 100 * 7 / 8.0 * 1000 / 1e10);
  EXPECT_EQ(message_seconds(hardware, 8), 0.0);
  hardware.network.message = 1e-5;
  EXPECT_DOUBLE_EQ(message_seconds(hardware, 8), 7e-5);
  hardware.nodes = 4;
  EXPECT_DOUBLE_EQ(message_seconds(hardware, 8), 3e-5);
  EXPECT_EQ(message_seconds(hardware, 1), 0.0);
}

TEST(ExchangeCost, ABusyProcessorRules) {
  const ExchangeKernel kernel{.latency = 1.0, .link = 1.0, .serial = 1e-6};
  const ExchangeWork work{.num_ranks = 4, .rows = 1, .row_bytes = 1, .serial = 50};
  EXPECT_NEAR(exchange_seconds(machine(), kernel, work), 1e-5 + 5e-5, 1e-9);
}

TEST(Fit, FindsTheConstantsThatMadeTheData) {
  // y = a + b·x, with one measurement that is far off.
  const std::vector<double> x = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  std::vector<double> measured;
  for (const double each : x) measured.push_back(3.0 + 0.25 * each);
  measured[4] *= 5.0;
  const auto predict = [&](std::span<const double> constants) {
    std::vector<double> predicted;
    for (const double each : x) predicted.push_back(constants[0] + constants[1] * each);
    return predicted;
  };
  const std::vector<double> found =
      fit_constants({1.0, 1.0}, [&](std::span<const double> constants) {
        return mean_log_error(predict(constants), measured);
      });
  EXPECT_NEAR(found[0], 3.0, 0.01);
  EXPECT_NEAR(found[1], 0.25, 0.001);
  const std::vector<double> errors = relative_errors(predict(found), measured);
  EXPECT_LT(errors[7], 0.01);
  EXPECT_NEAR(errors[8], 0.8, 0.01);
}

}  // namespace
}  // namespace wideep::cost
