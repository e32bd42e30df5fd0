// SPDX-License-Identifier: Apache-2.0
// wideep balance compare: table, JSON and page.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "command_balance.h"
#include "command_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandBalanceCompare : public CommandBalance {
 protected:
  static std::vector<std::string> compare(const std::string& stats,
                                          const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"compare", "--stats",     stats, "--ep-size",
                                          "4",       "--num-slots", "20"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  static json compare_json(const std::string& stats, std::vector<std::string> more = {}) {
    more.push_back("--json");
    const CommandEnd end = balance(compare(stats, more));
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return json::parse(end.out, nullptr, false);
  }
};

TEST_F(CommandBalanceCompare, EveryPlannerWithBothSplits) {
  const json result = compare_json(csv());
  EXPECT_EQ(result["ep_size"], 4);
  EXPECT_EQ(result["num_slots"], 20);
  EXPECT_EQ(result["num_slots_now"], 16);
  EXPECT_EQ(result["num_iterations"], 8);
  std::set<std::string> found;
  for (const json& each : result["plans"]) {
    const auto split = each["split"].get<std::string>();
    found.insert(each["planner"].get<std::string>() + " " + split);
    EXPECT_EQ(each["layers"].size(), 2u);
    EXPECT_GE(each["mean"]["imbalance_" + split].get<double>(),
              each["mean"]["lower_bound"].get<double>() - 1e-12);
    EXPECT_NEAR(each["moves"].get<double>(), 2 * each["mean"]["moves"].get<double>(), 1e-9);
    EXPECT_GT(each["plan_seconds"].get<double>(), 0.0);
    EXPECT_FALSE(each.contains("bytes"));
  }
  EXPECT_EQ(found, (std::set<std::string>{"wideep equal", "wideep weighted", "trt equal",
                                          "trt weighted", "deepseek equal", "deepseek weighted",
                                          "robust equal", "robust weighted"}));
}

TEST_F(CommandBalanceCompare, PrintsATable) {
  const CommandEnd end = balance(compare(csv()));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  for (const char* part :
       {"2 layers, 16 experts", "20 slots on 4 ranks", "8 iterations", "0 is perfect", "planner",
        "planned", "bound", "moves", "time", "wideep", "trt", "deepseek", "weighted"}) {
    EXPECT_THAT(end.out, HasSubstr(part));
  }
  EXPECT_THAT(end.out, Not(HasSubstr("held-out")));
  EXPECT_THAT(end.out, Not(HasSubstr("bytes")));
}

TEST_F(CommandBalanceCompare, HeldOutLoad) {
  const json result = compare_json(csv(), {"--holdout", "0.25"});
  EXPECT_EQ(result["num_iterations"], 6);
  EXPECT_EQ(result["num_held_out_iterations"], 2);
  for (const json& each : result["plans"]) {
    EXPECT_TRUE(each["mean"].contains("imbalance_held_out"));
    EXPECT_GT(each["mean"]["imbalance_now_held_out"], 0.0);
    EXPECT_TRUE(each["mean"].contains("imbalance_held_out_resplit"));
  }
  EXPECT_THAT(balance(compare(csv(), {"--holdout", "0.25"})).out, HasSubstr("2 iterations held"));
}

TEST_F(CommandBalanceCompare, BytesOfMoves) {
  const json given = compare_json(csv(), {"--model-bytes-per-expert", "1000"});
  for (const json& each : given["plans"]) {
    EXPECT_EQ(each["bytes"].get<double>(), 1000 * each["moves"].get<double>());
  }
  const json of_model = compare_json(csv(), {"--model", small_model()});
  EXPECT_GT(of_model["bytes_per_expert"].get<double>(), 0.0);
  EXPECT_THAT(balance(compare(csv(), {"--model-bytes-per-expert", "1048576"})).out,
              HasSubstr("MiB"));
}

TEST_F(CommandBalanceCompare, WrongModel) {
  const ModelCopy model;
  model.edit_config([](json& config) { config["first_k_dense_replace"] = 2; });
  expect_refused(balance(compare(csv(), {"--model", model.path()})),
                 {"--model", "layer 1", "no MoE layer"});
  const std::string other = write("other.csv", "layer,e0,e1\n1,5,6\n2,7,8\n");
  expect_refused(balance({"compare", "--stats", other, "--ep-size", "2", "--model", small_model()}),
                 {"--model", "expected 2 experts", "found 16"});
  expect_refused(balance(compare(csv(), {"--model-bytes-per-expert", "-5"})),
                 {"--model-bytes-per-expert", "found -5"});
  expect_refused(balance(compare(csv(), {"--model-bytes-per-expert", "5", "--model", "x"})),
                 {"--model"});
}

TEST_F(CommandBalanceCompare, PageLoadsNothing) {
  const CommandEnd end =
      balance(compare(csv(), {"--holdout", "0.25", "--html", file("page.html")}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("wrote " + file("page.html")));
  const std::string page = read("page.html");
  for (const char* mark :
       {"@FILE", "@DATA@", "@SUMMARY@", "http://", "https://", "src=", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(mark)));
  }
  const std::string begin = "<script id=\"data\" type=\"application/json\">";
  const size_t from = page.find(begin) + begin.size();
  const json data =
      json::parse(page.substr(from, page.find("</script>", from) - from), nullptr, false);
  ASSERT_TRUE(data.is_object());
  EXPECT_EQ(data["file"], "stats.csv");
  EXPECT_EQ(data["layers"], json({1, 2}));
  for (const json& each : data["plans"]) {
    ASSERT_EQ(each["rank_loads"].size(), 2u);
    for (const json& row : each["rank_loads"]) {
      const auto ranks = row.get<std::vector<int>>();
      ASSERT_EQ(ranks.size(), 4u);
      EXPECT_NEAR(ranks[0] + ranks[1] + ranks[2] + ranks[3], 4000, 2);
    }
  }
}

// Pictures are not compared: the test checks that the script runs to its end and has drawn its
// parts.
TEST_F(CommandBalanceCompare, PageDrawsItself) {
  if (std::system("command -v chromium >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "chromium is not installed: the page's script is not run";
  }
  ASSERT_EQ(balance(compare(csv(), {"--holdout", "0.25", "--html", file("page.html")})).exit_code,
            0);
  const std::string command = fmt::format(
      "chromium --headless --no-sandbox --disable-gpu --user-data-dir={} --dump-dom file://{} "
      ">{} 2>/dev/null",
      file("profile"), file("page.html"), file("drawn.html"));
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string drawn = read("drawn.html");
  for (const char* part : {"All planners", "Imbalance of each layer", "Load of every rank",
                           "Drawn by wideep balance compare", "class=\"line s1\"", "held out"}) {
    EXPECT_THAT(drawn, HasSubstr(part));
  }
  EXPECT_THAT(drawn, Not(HasSubstr("NaN")));
}

TEST_F(CommandBalanceCompare, NamesPlannersThatCannotPlanTheShape) {
  // 80 slots for 16 experts on 4 ranks: planner wideep would have to put an expert twice on a rank.
  const CommandEnd end =
      balance({"compare", "--stats", csv(), "--ep-size", "4", "--num-slots", "80", "--json"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, HasSubstr("warning: left out: planner wideep: num_slots: 80 slots"));
  EXPECT_EQ(json::parse(end.out, nullptr, false)["plans"].size(), 4u);
}

TEST_F(CommandBalanceCompare, NodesAndGroups) {
  const json result = compare_json(csv(), {"--nodes", "2", "--groups", "4"});
  for (const json& each : result["plans"]) {
    const bool bound_by_groups = each["planner"] != "trt";
    EXPECT_EQ(each["mean"]["lower_bound"].get<double>() > 0.01, bound_by_groups) << each["planner"];
  }
}

}  // namespace
}  // namespace wideep::tests
