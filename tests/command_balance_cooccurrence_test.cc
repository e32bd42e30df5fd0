// SPDX-License-Identifier: Apache-2.0
// wideep balance on traces: ranks per token, and planner cooccurrence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "command_balance.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandBalanceCooccurrence : public CommandBalance {
 protected:
  static std::vector<std::string> traced(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = trace_shape();
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  std::vector<std::string> compare(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"compare", "--stats",     trace(), "--ep-size",
                                          "4",       "--num-slots", "24"};
    for (const std::string& each : traced(more)) arguments.push_back(each);
    return arguments;
  }
};

TEST_F(CommandBalanceCooccurrence, PlansFewerRanksPerTokenThanWideep) {
  const json cooccurrence = balance_json(
      plan(trace(), 24,
           traced({"--planner", "cooccurrence", "--cooccurrence-tolerance", "0.1"})))["mean"];
  const json wideep = balance_json(plan(trace(), 24, trace_shape()))["mean"];
  EXPECT_LT(cooccurrence["ranks_per_token"].get<double>(), wideep["ranks_per_token"].get<double>());
  EXPECT_GT(cooccurrence["within_rank_ratio"].get<double>(),
            wideep["within_rank_ratio"].get<double>());
  EXPECT_LE(cooccurrence["imbalance_equal"].get<double>(), 0.1 + 1e-9);
  // With top-2 routing a token goes to two ranks, or to one if both its experts are there.
  EXPECT_NEAR(cooccurrence["ranks_per_token"].get<double>(),
              2 - cooccurrence["within_rank_ratio"].get<double>(), 1e-9);
  EXPECT_LE(cooccurrence["ranks_per_token_cover"].get<double>(),
            cooccurrence["ranks_per_token"].get<double>());
}

TEST_F(CommandBalanceCooccurrence, HeldOutTokensAreAnotherPartOfTheTrace) {
  const std::vector<std::string> halves = {"--trace-window", "1000", "--holdout"};
  std::vector<std::string> half = halves, whole = {"--holdout", trace()};
  half.push_back("0.5");
  const json cut = balance_json(plan(trace(), 24, traced(half)))["mean"];
  const json same = balance_json(plan(trace(), 24, traced(whole)))["mean"];
  EXPECT_EQ(same["ranks_per_token"], same["ranks_per_token_held_out"]);
  EXPECT_NE(cut["ranks_per_token"], cut["ranks_per_token_held_out"]);
  EXPECT_NEAR(cut["ranks_per_token"].get<double>(), cut["ranks_per_token_held_out"].get<double>(),
              0.1);
}

TEST_F(CommandBalanceCooccurrence, CompareShowsRanksForATrace) {
  const json plans = json::parse(balance(compare({"--json"})).out)["plans"];
  EXPECT_EQ(plans.size(), 8u);
  const auto planner_is = [](const std::string& name) {
    return [name](const json& each) { return each["planner"] == name; };
  };
  const json cooccurrence = *std::ranges::find_if(plans, planner_is("cooccurrence"));
  const json trt = *std::ranges::find_if(plans, planner_is("trt"));
  EXPECT_LT(cooccurrence["mean"]["ranks_per_token"].get<double>(),
            trt["mean"]["ranks_per_token"].get<double>());
  const std::string table =
      balance(compare({"--trace-window", "1000", "--holdout", "0.5", "--html", file("p.html")}))
          .out;
  for (const char* part : {"cooccurrence", "   ranks   cover", "ranks-held"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  EXPECT_THAT(read("p.html"), HasSubstr("ranks_per_token_cover_held_out"));
  EXPECT_THAT(balance({"compare", "--stats", csv(), "--ep-size", "4"}).out,
              Not(HasSubstr("cooccurrence")));
}

TEST_F(CommandBalanceCooccurrence, TheTableShowsRanks) {
  const std::string table = balance(plan(trace(), 24, traced({"--holdout", trace()}))).out;
  EXPECT_THAT(table, HasSubstr("   ranks   cover  ranks-held  cover-held"));
  EXPECT_THAT(balance(plan(csv(), 24)).out, Not(HasSubstr("cover")));
}

TEST_F(CommandBalanceCooccurrence, SavesMessagesBetweenNodesFirst) {
  const auto crossings = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--nodes", "2"});
    const json mean = balance_json(plan(trace(), 24, traced(more)))["mean"];
    EXPECT_LE(mean["imbalance_equal"].get<double>(), 0.1 + 1e-9);
    return mean["crossings_per_token"].get<double>();
  };
  EXPECT_LT(crossings({"--planner", "cooccurrence", "--cooccurrence-tolerance", "0.1"}),
            0.9 * crossings({}));
  const std::string table =
      balance(plan(trace(), 24, traced({"--nodes", "2", "--holdout", trace()}))).out;
  EXPECT_THAT(table, HasSubstr("   cover   nodes  ranks-held  cover-held  nodes-held"));
  EXPECT_THAT(balance(compare({"--nodes", "2"})).out, HasSubstr("   cover   nodes"));
  EXPECT_THAT(balance(plan(trace(), 24, trace_shape())).out, Not(HasSubstr("nodes")));
}

TEST_F(CommandBalanceCooccurrence, RefusesWrongInput) {
  const auto refuse = [&](std::vector<std::string> arguments, const char* part) {
    const CommandEnd end = balance(arguments);
    EXPECT_EQ(end.exit_code, 2);
    EXPECT_THAT(end.err, HasSubstr(part));
  };
  refuse(plan(csv(), 24, {"--planner", "cooccurrence"}),
         "--planner cooccurrence: needs the pairs of experts that tokens choose together");
  refuse(plan(csv(), 24, {"--cooccurrence-tolerance", "0.1"}), "has no effect on planner wideep");
  refuse(plan(trace(), 24, traced({"--planner", "cooccurrence", "--cooccurrence-tolerance", "-1"})),
         "--cooccurrence-tolerance: expected an imbalance ratio of at least 0, found -1");
  refuse({"compare", "--stats", csv(), "--ep-size", "4", "--cooccurrence-tolerance", "0.1"},
         "--cooccurrence-tolerance: has no effect without a per-token trace");
}

}  // namespace
}  // namespace wideep::tests
