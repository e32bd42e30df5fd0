// SPDX-License-Identifier: Apache-2.0
// wideep balance plan from several windows of load.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command_balance.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandBalanceRobust : public CommandBalance {
 protected:
  // Two kinds of requests take turns, each with its own hot experts.
  std::string taking_turns(int iterations) const {
    std::string text = "iteration,layer";
    for (int e = 0; e < kExperts; ++e) text += fmt::format(",e{}", e);
    for (int i = 0; i < iterations; ++i) {
      for (int layer = 1; layer <= 2; ++layer) text += row(i, layer);
    }
    return write(fmt::format("turns{}.csv", iterations), text + "\n");
  }

  static std::string row(int iteration, int layer) {
    std::string text = fmt::format("\n{},{}", iteration, layer);
    const int kind = iteration % 2;
    for (int e = 0; e < kExperts; ++e) {
      const int place = (e * (kind == 1 ? 7 : 11) + layer * 5 + kind * 9) % kExperts;
      text += fmt::format(",{}", 100 + 2000 / (3 + place) + (e * 7 + iteration * 5) % 11);
    }
    return text;
  }

  CommandEnd refused(const std::string& stats, const std::vector<std::string>& more) const {
    const CommandEnd end = balance(plan(stats, 20, more));
    EXPECT_EQ(end.exit_code, 2) << end.out;
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
    return end;
  }
};

TEST_F(CommandBalanceRobust, DefaultIsTheBestMethodOnWindowsLeftOut) {
  const json chosen = balance_json(plan(taking_turns(12), 20, {"--holdout", "0.25"}));
  const json sum =
      balance_json(plan(taking_turns(12), 20, {"--holdout", "0.25", "--robust", "off"}));
  // Both balance every window here.
  EXPECT_THAT(chosen["robust"]["method"].get<std::string>(), AnyOf("windows", "counts"));
  EXPECT_EQ(chosen["robust"]["windows_left_out"].size(), 6u);
  EXPECT_FALSE(sum.contains("robust"));
  EXPECT_EQ(chosen["windows"]["planned_on"]["num_windows"], 9);
  const auto later = [](const json& result) -> const json& {
    return result["windows"]["held_out"];
  };
  EXPECT_EQ(later(chosen)["num_windows"], 3);
  EXPECT_LT(later(chosen)["planned"]["mean"].get<double>(),
            0.5 * later(sum)["planned"]["mean"].get<double>());
  EXPECT_EQ(later(chosen)["now"], later(sum)["now"]);
  EXPECT_GE(later(sum)["planned"]["worst"], later(sum)["planned"]["mean"]);
  EXPECT_NEAR(later(sum)["planned"]["mean"].get<double>(),
              sum["mean"]["imbalance_held_out"].get<double>(), 1e-12);
}

TEST_F(CommandBalanceRobust, PrintsATable) {
  const CommandEnd end = balance(plan(taking_turns(12), 20, {"--holdout", "0.25"}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  for (const char* part : {"planned from windows of load: ", "; imbalance on windows left out with",
                           "sum 0.", "std:1 0.", "in 9 windows planned on", "in 3 windows held out",
                           "now      0.", "planned  0.", "re-split 0.", "worst"}) {
    EXPECT_THAT(end.out, HasSubstr(part));
  }
}

TEST_F(CommandBalanceRobust, MethodByName) {
  for (const char* way : {"sum", "plain", "mean", "std:0.5", "recent", "windows", "counts"}) {
    const json result = balance_json(plan(taking_turns(4), 20, {"--robust", way}));
    EXPECT_EQ(result["robust"]["method"], way);
    EXPECT_FALSE(result["robust"].contains("windows_left_out"));
  }
  const json worst =
      balance_json(plan(taking_turns(4), 20, {"--robust", "auto", "--robust-objective", "worst"}));
  EXPECT_TRUE(worst["robust"].contains("windows_left_out"));
}

TEST_F(CommandBalanceRobust, WindowsOfSeveralIterations) {
  const json result =
      balance_json(plan(taking_turns(12), 20, {"--window", "2", "--holdout", "0.34"}));
  EXPECT_EQ(result["windows"]["planned_on"]["num_windows"], 4);
  EXPECT_EQ(result["windows"]["held_out"]["num_windows"], 2);
}

TEST_F(CommandBalanceRobust, FewWindowsArePlannedOnTheirSum) {
  EXPECT_FALSE(balance_json(plan(taking_turns(3), 20)).contains("robust"));
  EXPECT_THAT(balance(plan(logical_count(), 20)).out, Not(HasSubstr("window")));
}

TEST_F(CommandBalanceRobust, Refusals) {
  const std::string stats = taking_turns(4);
  EXPECT_THAT(refused(stats, {"--robust", "best"}).err,
              HasSubstr("--robust: expected auto, sum, plain, mean, std:Z"));
  EXPECT_THAT(refused(stats, {"--robust", "std:x"}).err, HasSubstr("found \"std:x\""));
  EXPECT_THAT(refused(stats, {"--window", "0"}).err, HasSubstr("--window: expected at least 1"));
  EXPECT_THAT(refused(stats, {"--window", "5"}).err,
              HasSubstr("--window: expected windows of 1 to 4 iterations"));
  EXPECT_THAT(refused(stats, {"--robust", "mean", "--window", "4"}).err,
              HasSubstr("at least 2 windows of load, found 1"));
  EXPECT_THAT(refused(logical_count(), {"--robust", "auto"}).err,
              HasSubstr("--robust auto: expected at least 2 windows"));
  EXPECT_THAT(refused(stats, {"--robust", "auto", "--planner", "trt"}).err,
              HasSubstr("--robust: has no effect on planner trt"));
  EXPECT_THAT(refused(stats, {"--robust-objective", "worst"}).err,
              HasSubstr("--robust-objective: has no effect without a choice"));
}

}  // namespace
}  // namespace wideep::tests
