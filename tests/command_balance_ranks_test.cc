// SPDX-License-Identifier: Apache-2.0
// wideep balance with dead ranks, and with ranks that have less memory.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command_balance.h"
#include "recordings/balancer_yaml.h"

namespace wideep::tests {
namespace {

using balance::kUnusedSlot;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CommandBalanceRanks : public CommandBalance {
 protected:
  balance::ModelPlacement placements(const std::string& name) const {
    auto read = recordings::read_balancer_yaml(
        file(name),
        {.moe_layers = {1, 2}, .num_experts = kExperts, .ep_size = 4, .unused_slots = true});
    EXPECT_TRUE(read.ok()) << read.status().message();
    return std::move(read).value();
  }

  void expect_refusal(const std::vector<std::string>& arguments, const std::string& why) const {
    const CommandEnd end = balance(arguments);
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_EQ(end.out, "");
    EXPECT_THAT(end.err, HasSubstr(why));
  }
};

TEST_F(CommandBalanceRanks, PlansWithoutDeadRanks) {
  for (const char* planner : {"wideep", "trt", "deepseek"}) {
    const json plan =
        balance_json(this->plan(logical_count(), 24, {"--dead-ranks", "2", "--planner", planner}));
    EXPECT_EQ(plan["rank_slots"], json({6, 6, 0, 6}));
    EXPECT_LT(plan["mean"]["imbalance_equal"].get<double>(), 0.2) << planner;  // 1/3 if it counted
    EXPECT_GE(plan["mean"]["imbalance_equal"], plan["mean"]["lower_bound"]);
    for (const auto& [layer, placement] : placements("plan.yaml").layers) {
      EXPECT_EQ(placement.num_ranks_in_use(), 3);
      EXPECT_EQ(placement.experts_of_rank(2)[0], kUnusedSlot);
    }
  }
  EXPECT_THAT(read("plan.yaml"), HasSubstr("# -1: an unused slot"));
}

TEST_F(CommandBalanceRanks, PlansForTheMemoryThatRanksHave) {
  const std::vector<std::string> list = {"--rank-slots", "6,3,6,5", "--split", "weighted"};
  const json plan = balance_json(this->plan(logical_count(), 24, list));
  EXPECT_EQ(plan["rank_slots"], json({6, 3, 6, 5}));
  const std::string written = read("plan.yaml");
  balance_json(this->plan(logical_count(), 24, {"--rank-slots", "3:5,1:3", "--split", "weighted"}));
  EXPECT_EQ(read("plan.yaml"), written);
  const CommandEnd end = balance(this->plan(logical_count(), 24, list));
  EXPECT_THAT(end.out, AllOf(HasSubstr("of 4 ranks over"), HasSubstr("24 slots (20 usable)"),
                             HasSubstr("unused slots are -1")));
}

TEST_F(CommandBalanceRanks, RecoversFromALostRankAndBack) {
  balance_json(plan(logical_count(), 24));
  const std::vector<std::string> repair = {"plan", "--stats",  logical_count(),    "--ep-size",
                                           "4",    "--output", file("after.yaml"), "--from"};
  auto lost = repair;
  for (const std::string& more : {file("plan.yaml"), std::string("--dead-ranks"), std::string("1"),
                                  std::string("--max-moves"), std::string("0")}) {
    lost.push_back(more);
  }
  const json recovery = balance_json(lost);
  EXPECT_GT(recovery["forced_moves"].get<int>(), 0);
  int moves = 0;
  for (const json& layer : recovery["layers"]) moves += layer["moves"].get<int>();
  EXPECT_EQ(moves, recovery["forced_moves"]);
  EXPECT_EQ(placements("after.yaml").layers.at(1).num_ranks_in_use(), 3);
  auto back = repair;
  back.back() = "--from=" + file("after.yaml");
  // The rank that is back counts as live, although it holds no experts yet.
  auto idle = back;
  idle.insert(idle.end(), {"--max-moves", "0"});
  const json unmoved = balance_json(idle);
  EXPECT_EQ(unmoved["mean"]["moves"], 0.0);
  EXPECT_GE(unmoved["mean"]["imbalance_now"].get<double>(), 1.0 / 3);
  EXPECT_EQ(unmoved["mean"]["imbalance_now"], unmoved["mean"]["imbalance_equal"]);
  EXPECT_GE(unmoved["windows"]["planned_on"]["planned"]["mean"].get<double>(), 1.0 / 3);
  EXPECT_EQ(balance_json(back)["forced_moves"], 0);
  EXPECT_EQ(placements("after.yaml").layers.at(1).num_ranks_in_use(), 4);
}

TEST_F(CommandBalanceRanks, ReportsOnLiveRanks) {
  balance_json(plan(logical_count(), 24, {"--dead-ranks", "2"}));
  const json report = balance_json(
      {"report", "--stats", logical_count(), "--ep-size", "4", "--project", file("plan.yaml")});
  EXPECT_LT(report["average"]["imbalance_ratio"].get<double>(), 0.2);  // 1/3 if rank 2 counted
}

TEST_F(CommandBalanceRanks, ResplitsAmongLiveRanks) {
  // Every expert twice.
  write("twice.yaml",
        "num_slots: 32\ninitial_global_assignments:\n"
        "  1: [0,1,2,3,4,5,6,7, 8,9,10,11,12,13,14,15, 0,1,2,3,4,5,6,7, 8,9,10,11,12,13,14,15]\n"
        "  2: [0,1,2,3,4,5,6,7, 8,9,10,11,12,13,14,15, 0,1,2,3,4,5,6,7, 8,9,10,11,12,13,14,15]\n");
  std::vector<std::string> resplit = {
      "resplit",          "--stats",  logical_count(), "--ep-size",    "4", "--placement",
      file("twice.yaml"), "--shares", file("s.json"),  "--dead-ranks", "3"};
  EXPECT_EQ(balance_json(resplit)["num_ranks_in_use"], 3);
  EXPECT_EQ(json::parse(read("s.json"))["1"][31], 0.0);
  EXPECT_EQ(json::parse(read("s.json"))["1"][8], 1.0);
  resplit.back() = "1,3";
  expect_refusal(resplit,
                 "--dead-ranks: layer 1 (plan --from gives lost experts new slots): "
                 "without the dead ranks: expert 8 has no slot");
}

TEST_F(CommandBalanceRanks, ComparesPlannersThatSupportIt) {
  const CommandEnd dead = balance(
      {"compare", "--stats", csv(), "--ep-size", "4", "--num-slots", "24", "--dead-ranks", "0"});
  EXPECT_THAT(dead.out, AllOf(HasSubstr("24 slots (18 usable) on 3 live ranks of 4"),
                              HasSubstr("trt"), HasSubstr("deepseek")));
  const CommandEnd uneven = balance(
      {"compare", "--stats", csv(), "--ep-size", "4", "--num-slots", "24", "--rank-slots", "0:4"});
  EXPECT_EQ(uneven.exit_code, 0);
  EXPECT_THAT(uneven.err, HasSubstr("left out: planner trt: the live ranks: rank_slots"));
}

TEST_F(CommandBalanceRanks, ErrorsNameTheOption) {
  const auto with = [&](const char* option, const char* value) {
    return plan(logical_count(), 24, {option, value});
  };
  expect_refusal(with("--dead-ranks", "1,x"), "--dead-ranks: expected ranks such as 3,7");
  expect_refusal(with("--dead-ranks", "1,"), "--dead-ranks: expected ranks such as 3,7");
  expect_refusal(with("--dead-ranks", "4"), "--dead-ranks: expected ranks from 0 to 3, found 4");
  expect_refusal(with("--dead-ranks", "1,1"), "--dead-ranks: rank 1 is given twice");
  expect_refusal(with("--dead-ranks", "0,1"), "12 usable slots on 2 live ranks cannot hold 16");
  expect_refusal(with("--rank-slots", "6,6,6"),
                 "--rank-slots: expected a number of slots for each");
  expect_refusal(with("--rank-slots", "6,6,6,7"), "rank 3: expected 0 to 6 usable slots");
  expect_refusal(with("--rank-slots", "1:4,6"),
                 "--rank-slots: expected usable slots of every rank");
  expect_refusal(with("--rank-slots", "1:4,1:5"), "--rank-slots: rank 1 is given twice");
  expect_refusal(with("--rank-slots", "9:4"), "--rank-slots: expected ranks from 0 to 3, found 9");
  expect_refusal(plan(logical_count(), 24, {"--rank-slots", "1:4", "--dead-ranks", "1"}),
                 "--dead-ranks: rank 1 has 4 slots in --rank-slots");
  expect_refusal(plan(logical_count(), 24, {"--rank-slots", "1:4", "--planner", "trt"}),
                 "found 4 to 6; use planner wideep");
  EXPECT_THAT(balance(plan(logical_count(), 24, {"--dead-ranks", "0"})).err, "");
}

}  // namespace
}  // namespace wideep::tests
