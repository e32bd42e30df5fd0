// SPDX-License-Identifier: Apache-2.0
// wideep balance plan: every option, and the files that it writes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "command_balance.h"
#include "recordings/balancer_yaml.h"
#include "wideep/balancer.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandBalancePlan : public CommandBalance {
 protected:
  // The written placement file, read and checked against the model of the statistics.
  balance::ModelPlacement written(int ranks = 4) const {
    const auto placement = recordings::read_balancer_yaml(
        file("plan.yaml"), {.moe_layers = {1, 2}, .num_experts = kExperts, .ep_size = ranks});
    EXPECT_TRUE(placement.ok()) << placement.status().message();
    return placement.ok() ? *placement : balance::ModelPlacement();
  }
};

void expect_valid_ratios(const json& figures, const std::string& split) {
  const double planned = figures["imbalance_" + split].get<double>();
  EXPECT_GE(planned, figures["lower_bound"].get<double>() - 1e-12) << figures;
  EXPECT_LT(planned, figures["imbalance_now"].get<double>()) << figures;
  EXPECT_LE(figures["imbalance_weighted"].get<double>(),
            figures["imbalance_equal"].get<double>() + 1e-12);
}

TEST_F(CommandBalancePlan, JsonHasTheFiguresOfThePlan) {
  const json plan_json = balance_json(plan(logical_count(), 24));
  EXPECT_EQ(plan_json["planner"], "wideep");
  EXPECT_EQ(plan_json["split"], "equal");
  EXPECT_EQ(plan_json["ep_size"], 4);
  EXPECT_EQ(plan_json["num_slots"], 24);
  EXPECT_EQ(plan_json["num_slots_now"], 16);
  EXPECT_GT(plan_json["plan_seconds"].get<double>(), 0.0);
  EXPECT_EQ(plan_json["output"], file("plan.yaml"));
  ASSERT_EQ(plan_json["layers"].size(), 2u);
  EXPECT_EQ(plan_json["layers"][1]["layer"], 2);
  for (const json& layer : plan_json["layers"]) {
    expect_valid_ratios(layer, "equal");
    EXPECT_TRUE(layer["moves"].is_number_integer());
    EXPECT_FALSE(layer.contains("imbalance_held_out"));
  }
  expect_valid_ratios(plan_json["mean"], "equal");
}

TEST_F(CommandBalancePlan, WrittenPlacementHasTheReportedImbalance) {
  const json plan_json = balance_json(plan(logical_count(), 24));
  const balance::ModelPlacement placement = written();
  EXPECT_EQ(placement.num_slots, 24);
  for (const json& layer : plan_json["layers"]) {
    const auto& slots = placement.layers.at(layer["layer"].get<int>());
    const auto tokens = load(layer["layer"].get<int>(), 0);
    const double found = balance::imbalance_ratio(balance::rank_loads(
        slots, std::vector<double>(tokens.begin(), tokens.end()), balance::equal_shares(slots)));
    EXPECT_NEAR(layer["imbalance_equal"].get<double>(), found, 1e-12);
  }
}

TEST_F(CommandBalancePlan, PrintsATable) {
  const CommandEnd end = balance(plan(logical_count(), 24));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.err, "");
  for (const char* part :
       {"4 ranks", "load of 1 iteration\n", "16 slots, experts in order", "24 slots",
        "planner wideep: mean imbalance", "lower bound", "gap", "moves", " ms"}) {
    EXPECT_THAT(end.out, HasSubstr(part));
  }
  EXPECT_THAT(end.out, HasSubstr("wrote " + file("plan.yaml")));
  EXPECT_THAT(end.out, Not(HasSubstr("held")));
}

TEST_F(CommandBalancePlan, EqualInputGivesEqualFiles) {
  ASSERT_EQ(balance(plan(csv(), 24)).exit_code, 0);
  const std::string first = read("plan.yaml");
  ASSERT_EQ(balance(plan(csv(), 24)).exit_code, 0);
  EXPECT_EQ(read("plan.yaml"), first);
}

TEST_F(CommandBalancePlan, EveryKindOfStatistics) {
  std::vector<std::string> traced = trace_shape();
  traced.insert(traced.end(), {"--trace-window", "500"});
  EXPECT_EQ(balance_json(plan(trace(), 24, traced))["layers"].size(), 2u);
  EXPECT_EQ(balance_json(plan(csv(), 24))["layers"].size(), 2u);
  EXPECT_EQ(balance_json(plan(logical_count(), 24))["layers"].size(), 2u);
  const json from_directory = balance_json(
      {"plan", "--stats", recorded(), "--num-slots", "24", "--output", file("plan.yaml")});
  EXPECT_EQ(from_directory["ep_size"], 2);  // as many as recorded
}

TEST_F(CommandBalancePlan, DefaultIsOneSlotPerExpert) {
  const json plan_json =
      balance_json({"plan", "--stats", csv(), "--ep-size", "4", "--output", file("plan.yaml")});
  EXPECT_EQ(plan_json["num_slots"], 16);
  EXPECT_GT(plan_json["mean"]["lower_bound"].get<double>(), 0.0);  // one expert weighs too much
}

TEST_F(CommandBalancePlan, SharesOfAWeightedSplit) {
  const json plan_json = balance_json(
      plan(logical_count(), 24, {"--split", "weighted", "--shares", file("shares.json")}));
  EXPECT_EQ(plan_json["split"], "weighted");
  EXPECT_EQ(plan_json["shares"], file("shares.json"));
  EXPECT_LE(plan_json["mean"]["imbalance_weighted"].get<double>(), 1e-6);  // a spare slot per rank
  EXPECT_EQ(plan_json["mean"]["lower_bound"], 0.0);
  const json shares = json::parse(read("shares.json"), nullptr, false);
  ASSERT_EQ(shares.size(), 2u);
  for (const auto& [layer, slots] : written().layers) {
    const auto row = shares[fmt::format("{}", layer)].get<std::vector<double>>();
    ASSERT_EQ(row.size(), 24u);
    std::vector<double> sums(kExperts, 0.0);
    for (size_t slot = 0; slot < 24; ++slot) {
      sums[static_cast<size_t>(slots.slot_to_expert[slot])] += row[slot];
    }
    EXPECT_THAT(sums, ::testing::Each(::testing::DoubleNear(1.0, 1e-12)));
    const auto tokens = load(layer, 0);
    EXPECT_LE(balance::imbalance_ratio(balance::rank_loads(
                  slots, std::vector<double>(tokens.begin(), tokens.end()), row)),
              1e-6);
  }
}

TEST_F(CommandBalancePlan, SharesOfAnEqualSplitAreEqual) {
  balance_json(plan(logical_count(), 24, {"--shares", file("shares.json")}));
  const json shares = json::parse(read("shares.json"), nullptr, false);
  EXPECT_EQ(shares["2"].get<balance::Shares>(), balance::equal_shares(written().layers.at(2)));
}

TEST_F(CommandBalancePlan, OtherPlannersWarnOfTwoReplicasOnARank) {
  // 4 ranks of 6 slots, and one expert with most of the load: the greedy planner puts it twice on a
  // rank.
  const std::string stats = write(
      "hot.json", R"({"logical_count": [[1000000, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]]})");
  for (const char* planner : {"trt", "deepseek"}) {
    const CommandEnd end = balance(plan(stats, 24, {"--planner", planner, "--json"}));
    EXPECT_EQ(end.exit_code, 0) << end.err;
    EXPECT_EQ(end.err, fmt::format("warning: planner {} puts two replicas of an expert on one rank "
                                   "in 1 of 1 layers\n",
                                   planner));
    EXPECT_EQ(json::parse(end.out, nullptr, false)["planner"], planner);
  }
  EXPECT_EQ(balance(plan(stats, 24, {"--planner", "wideep"})).err, "");
}

TEST_F(CommandBalancePlan, GroupsStayOnTheirNode) {
  const json plan_json = balance_json(plan(logical_count(), 24, {"--nodes", "2", "--groups", "4"}));
  EXPECT_GT(plan_json["mean"]["lower_bound"].get<double>(), 0.0);
  for (const auto& [layer, placement] : written().layers) {
    std::vector<int> node_of_group(4, -1);
    for (int slot = 0; slot < 24; ++slot) {
      const auto group =
          static_cast<size_t>(placement.slot_to_expert[static_cast<size_t>(slot)] / 4);
      const int node = placement.rank_of_slot(slot) / 2;
      if (node_of_group[group] < 0) node_of_group[group] = node;
      EXPECT_EQ(node_of_group[group], node) << "layer " << layer << ", slot " << slot;
    }
  }
}

TEST_F(CommandBalancePlan, ToleranceEndsTheSearch) {
  const json loose = balance_json(plan(csv(), 20, {"--tolerance", "0.5"}));
  const json tight = balance_json(plan(csv(), 20, {"--tolerance", "0"}));
  EXPECT_LE(tight["mean"]["imbalance_equal"], loose["mean"]["imbalance_equal"]);
}

TEST_F(CommandBalancePlan, UpdatesPerIterationAreWritten) {
  balance_json(plan(csv(), 24, {"--layer-updates-per-iter", "3"}));
  EXPECT_EQ(written().layer_updates_per_iter, 3);
}

TEST_F(CommandBalancePlan, IterationsAreChosen) {
  balance_json(plan(csv(8), 24, {"--iter-start", "3", "--iter-stop", "4"}));
  const std::string chosen = read("plan.yaml");
  balance_json(plan(logical_count(3), 24));
  EXPECT_EQ(read("plan.yaml"), chosen);
}

TEST_F(CommandBalancePlan, HeldOutIterationsAreNotPlannedOn) {
  const json judged = balance_json(plan(csv(8), 24, {"--holdout", "0.25"}));
  const std::string chosen = read("plan.yaml");
  for (const json& layer : judged["layers"]) {
    EXPECT_GT(layer["imbalance_held_out"].get<double>(), 0.0);
    EXPECT_LE(layer["imbalance_held_out_resplit"].get<double>(),
              layer["imbalance_held_out"].get<double>() + 1e-12);
  }
  EXPECT_TRUE(judged["mean"].contains("imbalance_held_out"));
  balance_json(plan(csv(6), 24));
  EXPECT_EQ(read("plan.yaml"), chosen);
}

TEST_F(CommandBalancePlan, HeldOutFile) {
  const std::string later = logical_count(5);
  const CommandEnd end = balance(plan(logical_count(), 24, {"--holdout", later}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("1 iteration held out"));
  EXPECT_THAT(end.out, HasSubstr("held-out"));
  // Evaluated on the load that it was planned on, a plan has the planned imbalance.
  const json same = balance_json(plan(logical_count(), 24, {"--holdout", logical_count()}));
  EXPECT_EQ(same["mean"]["imbalance_held_out"], same["mean"]["imbalance_equal"]);
}

TEST_F(CommandBalancePlan, ProgressIsForTerminals) { EXPECT_EQ(balance(plan(csv(), 24)).err, ""); }

TEST_F(CommandBalancePlan, ChecksTheShapeBeforePlanning) {
  expect_refused(balance({"plan", "--stats", logical_count(), "--ep-size", "2147483647", "--output",
                          file("plan.yaml")}),
                 {"num_slots", "2147483647"});
}

}  // namespace
}  // namespace wideep::tests
