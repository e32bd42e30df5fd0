// SPDX-License-Identifier: Apache-2.0
// wideep balance plan --from, and wideep balance resplit: commands that start from a placement.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "command_balance.h"
#include "recordings/balancer_yaml.h"
#include "wideep/balancer.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class CommandBalanceRepair : public CommandBalance {
 protected:
  // A placement for the load of `iteration`, in from.yaml.
  std::string old_placement(int iteration, int slots = 20) const {
    const CommandEnd end =
        balance({"plan", "--stats", logical_count(iteration), "--ep-size", "4", "--num-slots",
                 fmt::format("{}", slots), "--output", file("from.yaml")});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return file("from.yaml");
  }

  // Statistics whose first layer has a hot expert that is not hot in any iteration of load().
  std::string drifted() const {
    std::vector<int64_t> one = load(1, 0);
    one[1] += 1500;
    std::string text = "layer";
    for (int expert = 0; expert < kExperts; ++expert) text += fmt::format(",e{}", expert);
    return write("drifted.csv", fmt::format("{}\n1,{}\n2,{}\n", text, fmt::join(one, ","),
                                            fmt::join(load(2, 0), ",")));
  }

  std::vector<std::string> repair(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"plan",           "--stats",  drifted(),
                                          "--ep-size",      "4",        "--from",
                                          old_placement(0), "--output", file("plan.yaml")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::vector<std::string> resplit(const std::string& stats, const std::string& placement) const {
    return {"resplit",     "--stats", stats,      "--ep-size",        "4",
            "--placement", placement, "--shares", file("shares.json")};
  }
};

TEST_F(CommandBalanceRepair, MovesFewExperts) {
  const json repaired = balance_json(repair());
  EXPECT_EQ(repaired["from"], file("from.yaml"));
  EXPECT_EQ(repaired["num_slots"], 20);
  EXPECT_EQ(repaired["num_slots_now"], 20);
  EXPECT_EQ(repaired["layers"][1]["moves"], 0);  // its load is the same
  EXPECT_GT(repaired["layers"][0]["moves"].get<int>(), 0);
  EXPECT_LT(repaired["layers"][0]["moves"].get<int>(), 20);
  EXPECT_LT(repaired["layers"][0]["imbalance_equal"], repaired["layers"][0]["imbalance_now"]);
}

TEST_F(CommandBalanceRepair, RespectsMaxMoves) {
  for (const int budget : {0, 1, 3}) {
    const json repaired = balance_json(repair({"--max-moves", fmt::format("{}", budget)}));
    for (const json& layer : repaired["layers"]) {
      EXPECT_LE(layer["moves"].get<int>(), budget);
      EXPECT_LE(layer["imbalance_equal"].get<double>(),
                layer["imbalance_now"].get<double>() + 1e-12);
    }
  }
  balance_json(repair({"--max-moves", "0"}));
  EXPECT_EQ(read("plan.yaml"), read("from.yaml"));
}

// A repair keeps the file's settings of online balancing, except those given as options.
TEST_F(CommandBalanceRepair, SettingsOfTheFileStay) {
  const std::string from = old_placement(0);
  std::string text = read("from.yaml");
  const std::string before = "layer_updates_per_iter: 0\n";
  ASSERT_NE(text.find(before), text.npos);
  text.replace(text.find(before), before.size(),
               "layer_updates_per_iter: 2\nshare_update: window\nupdate_policy: trt\n"
               "spare_slots: 3\n");
  const std::string online = write("online.yaml", text);
  const auto written = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = repair(more);
    *std::find(arguments.begin(), arguments.end(), from) = online;
    balance_json(arguments);
    return recordings::read_balancer_yaml(
               file("plan.yaml"), {.moe_layers = {1, 2}, .num_experts = kExperts, .ep_size = 4})
        .value();
  };
  const balance::ModelPlacement kept = written({});
  EXPECT_EQ(kept.layer_updates_per_iter, 2);
  EXPECT_EQ(kept.share_update, balance::ShareUpdate::kWindow);
  EXPECT_EQ(kept.update_policy, balance::UpdatePolicyKind::kTrt);
  EXPECT_EQ(kept.spare_slots, 3);
  EXPECT_EQ(written({"--layer-updates-per-iter", "1"}).layer_updates_per_iter, 1);
  const balance::ModelPlacement fixed = written({"--layer-updates-per-iter", "0"});
  EXPECT_EQ(fixed.layer_updates_per_iter, 0);
  EXPECT_EQ(fixed.share_update, balance::ShareUpdate::kWindow);
}

TEST_F(CommandBalanceRepair, SharesComeFirst) {
  const json shared = balance_json(repair({"--split", "weighted", "--shares", file("s.json")}));
  const json equal = balance_json(repair());
  EXPECT_LE(shared["layers"][0]["moves"], equal["layers"][0]["moves"]);
  EXPECT_LE(shared["mean"]["imbalance_weighted"].get<double>(), 0.01);
}

TEST_F(CommandBalanceRepair, StopsAtTheTolerance) {
  const json loose = balance_json(repair({"--tolerance", "100"}));
  EXPECT_EQ(loose["mean"]["moves"], 0.0);
}

TEST_F(CommandBalanceRepair, OptionsThatContradict) {
  expect_refused(balance(repair({"--planner", "trt"})), {"--from", "planner trt"});
  expect_refused(balance(plan(csv(), 20, {"--max-moves", "3"})), {"--max-moves", "give --from"});
  expect_refused(balance(repair({"--num-slots", "24"})),
                 {"--num-slots", "expected the 20 slots", "from.yaml", "found 24"});
  expect_refused(balance(repair({"--max-moves", "-1"})), {"--max-moves"});
}

TEST_F(CommandBalanceRepair, PlacementOfAnotherModel) {
  const std::string other = write("other.yaml",
                                  "num_slots: 4\ninitial_global_assignments:\n"
                                  "  1: [0, 1, 2, 3]\n  2: [0, 1, 2, 3]\n");
  for (const auto& arguments : {plan(csv(), 20, {"--from", other}), resplit(csv(), other)}) {
    expect_refused(balance(arguments), {"other.yaml", "16 experts", "found 4"});
  }
  const std::string layer = write("layer.yaml",
                                  "num_slots: 16\ninitial_global_assignments:\n"
                                  "  7: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]\n");
  expect_refused(balance(resplit(csv(), layer)), {"layer.yaml", "layer 1 is missing"});
  expect_refused(balance(resplit(csv(), file("absent.yaml"))), {"absent.yaml"});
  // 20 slots cannot be divided among 3 ranks.
  expect_refused(balance({"resplit", "--stats", csv(), "--ep-size", "3", "--placement",
                          old_placement(0), "--shares", file("s.json")}),
                 {"from.yaml", "3 ranks", "found 20"});
}

TEST_F(CommandBalanceRepair, ResplitLowersTheImbalanceWithoutMoves) {
  const json result = balance_json(resplit(drifted(), old_placement(0)));
  EXPECT_EQ(result["placement"], file("from.yaml"));
  EXPECT_EQ(result["ep_size"], 4);
  EXPECT_EQ(result["num_slots"], 20);
  ASSERT_EQ(result["layers"].size(), 2u);
  EXPECT_LT(result["layers"][0]["imbalance_weighted"], result["layers"][0]["imbalance_equal"]);
  EXPECT_LT(result["mean"]["imbalance_weighted"], result["mean"]["imbalance_equal"]);
  const json shares = json::parse(read("shares.json"), nullptr, false);
  EXPECT_EQ(shares["1"].size(), 20u);
  EXPECT_EQ(shares["2"].size(), 20u);
}

TEST_F(CommandBalanceRepair, ResplitTable) {
  const CommandEnd end = balance(resplit(drifted(), old_placement(0)));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  for (const char* part : {"4 ranks", "equal", "weighted", "mean", "no expert moved"}) {
    EXPECT_THAT(end.out, HasSubstr(part));
  }
  EXPECT_THAT(end.out, HasSubstr("wrote " + file("shares.json")));
}

TEST_F(CommandBalanceRepair, ResplitDoesNotReplaceThePlacement) {
  auto arguments = resplit(csv(), old_placement(0));
  arguments.back() = file("from.yaml");
  expect_refused(balance(arguments), {"--shares", "from.yaml", "--placement"});
  EXPECT_THAT(read("from.yaml"), HasSubstr("num_slots"));
}

}  // namespace
}  // namespace wideep::tests
