// SPDX-License-Identifier: Apache-2.0
// wideep simulate moves, imbalance, tpot and rebalance: table, JSON and page.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "command_balance.h"
#include "command_machine.h"
#include "command_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandSimulate : public CommandBalance {
 protected:
  static CommandEnd simulate(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "simulate");
    return run_command({.arguments = arguments});
  }
  static json simulate_json(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const CommandEnd end = simulate(arguments);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return json::parse(end.out, nullptr, false);
  }

  // Of each command, on the small model or its statistics.
  std::vector<std::vector<std::string>> all() const {
    const std::vector<std::string> model = {"--model", small_model(), "--hardware", "h100_sxm"};
    const auto with = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), model.begin(), model.end());
      return arguments;
    };
    return {with({"moves"}),
            {"imbalance", "--stats", csv(), "--ranks", "2,4,8"},
            {"tpot", "--stats", csv(), "--tpot", "5", "--isl", "16", "--osl", "16", "--ranks-max",
             "8", "--dtype", "bf16", "--model", small_model(), "--hardware",
             write("machine.yaml", kMachine)},
            with({"rebalance", "--stats", csv(), "--ep-size", "4", "--dtype", "bf16"})};
  }
};

TEST_F(CommandSimulate, TablesAndJsonHaveTheSameRows) {
  for (const std::vector<std::string>& arguments : all()) {
    const CommandEnd end = simulate(arguments);
    ASSERT_EQ(end.exit_code, 0) << end.err;
    const json found = simulate_json(arguments);
    ASSERT_FALSE(found["rows"].empty()) << arguments[0];
    const auto lines = std::ranges::count(end.out, '\n');
    EXPECT_EQ(static_cast<size_t>(lines), found["facts"].size() + 1 + found["rows"].size());
    EXPECT_THAT(end.out, HasSubstr(found["facts"][0].get<std::string>()));
  }
}

TEST_F(CommandSimulate, MoreTimeAndMoreRanksMeanMore) {
  const json moves = simulate_json(all()[0])["rows"];
  EXPECT_NEAR(moves[5]["network"].get<double>() / moves[0]["network"].get<double>(), 20.0, 1e-6);
  const json imbalance = simulate_json(all()[1])["rows"];
  EXPECT_LT(imbalance[0]["in_order"], imbalance[2]["in_order"]);
  EXPECT_LE(imbalance[2]["wideep"], imbalance[2]["in_order"]);
}

TEST_F(CommandSimulate, TpotSaysWhichSizesHoldIt) {
  std::vector<std::string> arguments = all()[2];
  const json held = simulate_json(arguments)["rows"];
  for (const json& row : held) EXPECT_LE(row["tpot_ms"], 5.0);
  arguments[4] = "0.0001";
  const json none = simulate_json(arguments);
  EXPECT_THAT(none["facts"][1].get<std::string>(), HasSubstr("no EP size holds 0.0001 ms"));
  for (const json& row : none["rows"]) EXPECT_TRUE(row["tpot_ms"].is_null());
  EXPECT_EQ(none["rows"].size(), held.size());
}

TEST_F(CommandSimulate, RebalanceBeginsWithTheMostMoves) {
  const json found = simulate_json(all()[3]);
  ASSERT_EQ(found["rows"].size(), 7u);  // 8 windows of an iteration
  EXPECT_GT(found["rows"][0]["moves"], 0);
  EXPECT_GT(found["rows"][0]["saved_us"], 0.0);
  for (size_t i = 1; i < 7; ++i) EXPECT_LT(found["rows"][i]["moves"], found["rows"][0]["moves"]);
}

TEST_F(CommandSimulate, RebalanceNeedsTwoWindows) {
  std::vector<std::string> arguments = all()[3];
  arguments[2] = logical_count();
  const CommandEnd end = simulate(arguments);
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("expected at least 2 windows of iterations, found 1"));
  arguments.insert(arguments.end(), {"--holdout", logical_count(3)});
  EXPECT_EQ(simulate(arguments).exit_code, 0);
}

// Pictures are not compared: the test checks that the script runs to its end and has drawn its
// parts.
TEST_F(CommandSimulate, PagesLoadNothingAndDrawThemselves) {
  const bool has_browser = std::system("command -v chromium >/dev/null 2>&1") == 0;
  for (std::vector<std::string> arguments : all()) {
    const std::string page = arguments[0] + ".html";
    arguments.insert(arguments.end(), {"--html", file(page)});
    ASSERT_EQ(simulate(arguments).exit_code, 0);
    for (const char* mark : {"@FILE", "@PART", "@DATA@", "@SUMMARY@", "@TITLE@", "http://",
                             "https://", "src=", "@import"}) {
      EXPECT_THAT(read(page), Not(HasSubstr(mark)));
    }
    if (!has_browser) continue;
    const std::string command = fmt::format(
        "chromium --headless --no-sandbox --disable-gpu --user-data-dir={} --dump-dom file://{} "
        ">{} 2>/dev/null",
        file("profile"), file(page), file("drawn.html"));
    ASSERT_EQ(std::system(command.c_str()), 0);
    const std::string drawn = read("drawn.html");
    for (const std::string& part : {std::string("All numbers"), std::string("class=\"line s0\""),
                                    "Drawn by wideep simulate " + arguments[0]}) {
      EXPECT_THAT(drawn, HasSubstr(part));
    }
    EXPECT_THAT(drawn, Not(HasSubstr("NaN")));
  }
  if (!has_browser) GTEST_SKIP() << "chromium is not installed: the pages' scripts are not run";
}

}  // namespace
}  // namespace wideep::tests
