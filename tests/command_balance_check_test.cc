// SPDX-License-Identifier: Apache-2.0
// wideep balance check: maps of engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command_balance.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class CommandBalanceCheck : public CommandBalance {
 protected:
  // Maps as vLLM has them, of two layers with 4 experts in 6 slots.
  static json good_maps() {
    return {{"physical_to_logical_map", {{0, 1, 2, 3, 1, 3}, {3, 2, 1, 0, 0, 0}}},
            {"logical_to_physical_map",
             {{{0, -1, -1}, {1, 4, -1}, {2, -1, -1}, {3, 5, -1}},
              {{3, 4, 5}, {2, -1, -1}, {1, -1, -1}, {0, -1, -1}}}},
            {"logical_replica_count", {{1, 2, 1, 2}, {3, 1, 1, 1}}}};
  }
  std::string maps(const json& content, const std::string& name = "maps.json") const {
    return write(name, content.dump());
  }
};

TEST_F(CommandBalanceCheck, GoodMaps) {
  const CommandEnd end = balance({"check", "--map", maps(good_maps())});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_EQ(end.out, file("maps.json") +
                         ": 2 layers, 6 slots, 4 experts: physical_to_logical_map, "
                         "logical_replica_count, logical_to_physical_map\nno fault\n");
  EXPECT_EQ(end.err, "");
}

TEST_F(CommandBalanceCheck, FaultsAreOneLineEach) {
  json bad = good_maps();
  bad["physical_to_logical_map"][1] = {3, 2, 1, 0, 0, 1};  // the rest is still of the old placement
  bad["note"] = "dumped by hand";
  const CommandEnd end = balance({"check", "--map", maps(bad), "--ep-size", "3"});
  EXPECT_EQ(end.exit_code, 2);
  const std::string where = file("maps.json") + ": layer 1: ";
  EXPECT_THAT(end.out, HasSubstr(where + "stale: expert 0: logical_to_physical lists slot 5, which "
                                         "holds expert 1"));
  EXPECT_THAT(end.out, HasSubstr(where + "missing-replica: expert 1: slot 5 holds it"));
  EXPECT_THAT(end.out, HasSubstr(where + "count: expert 0: the replica count is 3, the slots that "
                                         "hold it are 2 (counts sum to 6, slots in use are 6) (and "
                                         "1 more like it)"));
  EXPECT_THAT(end.out, HasSubstr("not looked at: note"));
  EXPECT_THAT(end.out, ::testing::Not(HasSubstr("layer 0:")));
  EXPECT_THAT(end.err, HasSubstr("4 faults; do not serve with these maps"));
}

TEST_F(CommandBalanceCheck, TokensThatWentElsewhere) {
  json counted = good_maps();
  counted["logical_count"] = {{5, 6, 7, 8}, {1, 2, 3, 4}};
  counted["physical_count"] = {{5, 2, 7, 8, 4, 0}, {1, 2, 3, 4, 0, 0}};  // layer 1: by expert ids
  const CommandEnd end = balance({"check", "--map", maps(counted)});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.out, HasSubstr("layer 1: tokens-by-id: each slot received the tokens"));
  EXPECT_THAT(end.out, ::testing::Not(HasSubstr("layer 0:")));
}

TEST_F(CommandBalanceCheck, RanksMustAgree) {
  json other = good_maps();
  other.erase("logical_to_physical_map");
  other["physical_to_logical_map"][0] = {1, 0, 2, 3, 1, 3};
  const std::string first = maps(good_maps(), "rank0.json");
  const CommandEnd end = balance({"check", "--map", first, "--map", maps(other, "rank1.json")});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.out, HasSubstr(file("rank1.json") +
                                 ": layer 0: other-map: slot 0: 1 here, 0 in " + first));
  EXPECT_EQ(balance({"check", "--map", first, "--map", first}).exit_code, 0);
}

TEST_F(CommandBalanceCheck, PlansOfTheProductHaveNoFault) {
  for (const std::string planner : {"wideep", "trt"}) {
    ASSERT_EQ(balance(plan(logical_count(), 20, {"--planner", planner})).exit_code, 0);
    const json checked = balance_json({"check", "--map", file("plan.yaml"), "--ep-size", "4"});
    EXPECT_EQ(checked["num_faults"], 0);
    EXPECT_EQ(checked["files"][0]["layers"], (json{1, 2}));
    EXPECT_EQ(checked["files"][0]["num_experts"], kExperts);
    EXPECT_EQ(checked["files"][0]["num_experts_is_guessed"], true);
  }
}

TEST_F(CommandBalanceCheck, ReplicasOnOneRankAreNoFault) {
  const std::string path = write("two.json", R"({"physical_to_logical_map": [0, 0, 1, 2]})");
  const CommandEnd end = balance({"check", "--map", path, "--ep-size", "2"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr(": 1 layer, 4 slots, 3 experts (largest id + 1; --num-experts"));
  EXPECT_THAT(end.out, HasSubstr("layer 0: note: same-rank: expert 0: slots 0 and 1 are both on "
                                 "rank 0"));
}

TEST_F(CommandBalanceCheck, BadInput) {
  EXPECT_EQ(balance({"check"}).exit_code, 2);
  EXPECT_THAT(balance({"check", "--map", file("none.json")}).err, HasSubstr("none.json"));
  const CommandEnd few = balance({"check", "--map", maps(good_maps()), "--num-experts", "3"});
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_THAT(few.out, HasSubstr("length: logical_to_physical: expected 3 values"));
  EXPECT_EQ(balance({"check", "--map", maps(good_maps()), "--ep-size", "0"}).exit_code, 2);
}

}  // namespace
}  // namespace wideep::tests
