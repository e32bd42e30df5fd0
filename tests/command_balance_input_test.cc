// SPDX-License-Identifier: Apache-2.0
// wideep balance with statistics and numbers that it must refuse: one line each, exit code 2.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "command_balance.h"
#include "recordings/statistics_writer.h"

namespace wideep::tests {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string text;
  std::vector<std::string> parts;
};

class CommandBalanceInput : public CommandBalance {
 protected:
  // By every command that reads statistics.
  void expect_all_refuse(const std::string& stats, const std::vector<std::string>& parts,
                         const std::vector<std::string>& more = {}) {
    const std::vector<std::vector<std::string>> commands = {
        {"report"},
        {"plan", "--output", file("plan.yaml")},
        {"compare"},
        {"resplit", "--placement", file("from.yaml"), "--shares", file("shares.json")}};
    for (std::vector<std::string> arguments : commands) {
      SCOPED_TRACE(arguments[0]);
      for (const char* each : {"--stats", stats.c_str(), "--ep-size", "2"})
        arguments.push_back(each);
      arguments.insert(arguments.end(), more.begin(), more.end());
      expect_refused(balance(arguments), parts);
    }
    EXPECT_FALSE(fs::exists(file("plan.yaml")));
    EXPECT_FALSE(fs::exists(file("shares.json")));
  }

  void expect_file_refused(const std::string& name, const Case& c) {
    SCOPED_TRACE(c.text);
    std::vector<std::string> parts = c.parts;
    parts.push_back(name);
    expect_all_refuse(write(name, c.text), parts);
  }

  // A directory of one rank with these rows, by iteration, of layer 3.
  std::string directory(const std::vector<std::pair<int, std::vector<int64_t>>>& rows) {
    recordings::StatisticsWriter writer(file("stats"), 0, {.num_experts = 2, .top_k = 1});
    EXPECT_TRUE(recordings::prepare_statistics_directory(file("stats")).ok());
    for (const auto& [iteration, tokens] : rows) writer.add(iteration, 3, tokens);
    EXPECT_TRUE(writer.write().ok());
    return file("stats");
  }
};

TEST_F(CommandBalanceInput, LogicalCount) {
  const std::vector<Case> cases = {
      {R"({"logical_count": [[1, -2]]})", {"logical_count[0][1]", "found -2"}},
      {R"({"logical_count": [[1, NaN]]})", {":1:"}},
      {R"({"logical_count": [[1, 1e400]]})", {":1:"}},
      {R"({"logical_count": [[1, 1e18]]})", {"logical_count[0][1]", "2^53"}},
      {R"({"logical_count": [[1, 0.5]]})", {"logical_count[0][1]", "found 0.5"}},
      {R"({"logical_count": [[1, 2], [3]]})", {"logical_count[1]"}},
      {R"({"logical_count": [[0, 0]]})", {"tokens"}},
      {R"({"logical_count": []})", {"logical_count"}},
      {R"({"logical": [[1, 2]]})", {"logical_count"}},
      {"", {":1:"}},
  };
  for (const Case& c : cases) expect_file_refused("count.json", c);
}

TEST_F(CommandBalanceInput, Csv) {
  const std::vector<Case> cases = {
      {"layer,e0,e1\n1,5,-6\n", {"line 2", "column e1", "-6"}},
      {"layer,e0,e1\n1,5,nan\n", {"line 2", "column e1", "nan"}},
      {"layer,e0,e1\n1,5,1e300\n", {"line 2", "column e1", "1e300"}},
      {"layer,e0,e1\n1,9007199254740992,9007199254740992\n", {"line 2", "2^53"}},
      {"layer,e0,e1\n1,5\n", {"line 2", "expected 3 fields", "found 2"}},
      {"layer,e0,e1\n", {"no line below the header"}},
      {"layer,e0,e1\n1,0,0\n", {"every count is 0"}},
      {"", {"line 1"}},
      {"iteration,layer,e0,e1\n0,1,5,6\n2,1,5,6\n", {"iteration 1", "has no line"}},
      {"iteration,layer,e0,e1\n0,1,5,6\n0,2,5,6\n1,1,5,6\n", {"iteration 1", "layer 2"}},
  };
  for (const Case& c : cases) expect_file_refused("stats.csv", c);
}

TEST_F(CommandBalanceInput, Directory) {
  expect_all_refuse(directory({{0, {1, 2}}, {2, {3, 4}}}), {"rank0.safetensors", "expected every"});
  fs::remove_all(file("stats"));
  expect_all_refuse(directory({{0, {1, -2}}}), {"tensor 0_3", "expert 1", "found -2"});
  fs::remove_all(file("stats"));
  constexpr int64_t kHuge = int64_t{1} << 62;
  expect_all_refuse(directory({{0, {1, kHuge}}, {1, {1, kHuge}}}), {file("stats"), "2^53"});
  fs::remove_all(file("stats"));
  expect_all_refuse(directory({{0, {0, 0}}}), {file("stats"), "tokens"});
  fs::remove_all(file("stats"));
  fs::create_directory(file("stats"));
  expect_all_refuse(file("stats"), {file("stats"), "found no such file"});
  expect_all_refuse(file("absent"), {file("absent")});
}

TEST_F(CommandBalanceInput, Traces) {
  const std::string stats = trace();
  expect_all_refuse(stats, {"trace.u8", "--trace-layers, --trace-top-k and --num-experts"});
  const auto with = [](std::vector<std::string> more) {
    std::vector<std::string> shape = trace_shape();
    shape.insert(shape.end(), more.begin(), more.end());
    return shape;
  };
  expect_all_refuse(stats, {"--trace-window", "found 0"}, with({"--trace-window", "0"}));
  expect_all_refuse(stats, {"trace.u8", "half a window"}, with({"--trace-window", "100000"}));
  expect_all_refuse(stats, {"trace.u8", "token"},
                    {"--trace-layers", "2", "--trace-top-k", "2", "--num-experts", "8"});
  expect_all_refuse(stats, {"trace.u8"},
                    {"--trace-layers", "0", "--trace-top-k", "2", "--num-experts", "16"});
  expect_all_refuse(write("empty.u8", ""), {"empty.u8"}, trace_shape());
  expect_all_refuse(write("odd.u8", "abc"), {"odd.u8"}, trace_shape());
  expect_all_refuse(csv(), {"stats.csv", "describe a trace"}, {"--num-experts", "16"});
}

TEST_F(CommandBalanceInput, ImpossibleShapes) {
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> cases = {
      {{"--ep-size", "4", "--num-slots", "12"}, {"num_slots", "16 experts", "found 12"}},
      {{"--ep-size", "4", "--num-slots", "18"}, {"num_slots", "multiple of the 4", "found 18"}},
      {{"--ep-size", "3"}, {"num_slots", "multiple of the 3", "found 16"}},
      {{"--ep-size", "0"}, {"--ep-size", "found 0"}},
      {{"--ep-size", "32"}, {"32 ranks"}},
      {{}, {"--ep-size"}},
      {{"--ep-size", "4", "--nodes", "3", "--groups", "4"}, {"nodes", "4 ranks", "found 3"}},
      {{"--ep-size", "4", "--nodes", "2", "--groups", "5"}, {"groups", "16 experts", "found 5"}},
      {{"--ep-size", "4", "--groups", "2"}, {"--groups", "--nodes"}},
      {{"--ep-size", "4", "--tolerance", "-1"}, {"--tolerance", "found -1"}},
      {{"--ep-size", "4", "--tolerance", "nan"}, {"--tolerance", "found nan"}},
      {{"--ep-size", "4", "--num-slots", "9000000000"}, {"--num-slots"}},
  };
  for (const auto& [more, parts] : cases) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(more, " ")));
    std::vector<std::string> arguments = {"plan", "--stats", csv(), "--output", file("plan.yaml")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(balance(arguments), parts);
    arguments = {"compare", "--stats", csv()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(balance(arguments), parts);
  }
  EXPECT_FALSE(fs::exists(file("plan.yaml")));
}

TEST_F(CommandBalanceInput, OptionsThatAPlannerDoesNotSupport) {
  expect_refused(balance(plan(csv(), 20, {"--planner", "best"})), {"--planner", "best"});
  expect_refused(balance(plan(csv(), 20, {"--split", "half"})), {"--split", "half"});
  expect_refused(balance(plan(csv(), 80)), {"80 slots", "expected at most 64"});
  expect_refused(balance(plan(csv(), 20, {"--planner", "trt", "--nodes", "2", "--groups", "2"})),
                 {"--nodes", "planner trt"});
  expect_refused(balance(plan(csv(), 20, {"--planner", "deepseek", "--tolerance", "0.1"})),
                 {"--tolerance", "planner deepseek"});
  expect_refused(balance(plan(csv(), 20, {"--nodes", "2"})), {"--nodes", "--groups"});
}

TEST_F(CommandBalanceInput, Holdout) {
  for (const char* fraction : {"0", "1", "1.5", "-0.1", "nan"}) {
    SCOPED_TRACE(fraction);
    expect_refused(balance(plan(csv(), 20, {fmt::format("--holdout={}", fraction)})),
                   {"stats.csv", "--holdout", "between 0 and 1"});
  }
  expect_refused(balance(plan(logical_count(), 20, {"--holdout", "0.5"})),
                 {"count0.json", "--holdout", "at least 2 iterations", "second statistics file"});
  expect_refused(balance(plan(csv(), 20, {"--holdout", file("absent.json")})),
                 {"--holdout", "absent.json"});
  const std::string other = write("other.csv", "layer,e0,e1\n1,5,6\n");
  expect_refused(balance(plan(csv(), 20, {"--holdout", other})),
                 {"--holdout", "other.csv", "expected 16 experts", "found 2"});
  const std::string layers = write(
      "layers.json", "{\"logical_count\": [" + std::string("[1") + [] {
        std::string ones;
        for (int i = 1; i < kExperts; ++i) ones += ",1";
        return ones;
      }() + "]]}");
  expect_refused(balance(plan(csv(), 20, {"--holdout", layers})),
                 {"--holdout", "layers.json", "layer 1 is in the statistics planned on only"});
}

TEST_F(CommandBalanceInput, IterationsThatWereNotRecorded) {
  expect_refused(balance(plan(csv(8), 20, {"--iter-start", "8"})), {"stats.csv"});
  expect_refused(balance(plan(csv(8), 20, {"--iter-start", "5", "--iter-stop", "5"})),
                 {"stats.csv"});
}

TEST_F(CommandBalanceInput, OutputsThatCannotBeWritten) {
  fs::create_directory(file("folder"));
  expect_refused(balance({"plan", "--stats", csv(), "--ep-size", "4", "--output", file("folder")}),
                 {"--output", "folder"});
  expect_refused(balance(plan(csv(), 20, {"--shares", file("folder")})), {"--shares", "folder"});
  expect_refused(balance(plan(csv(), 20, {"--shares", file("plan.yaml")})),
                 {"--shares", "plan.yaml", "--output"});
  expect_refused(balance({"compare", "--stats", csv(), "--ep-size", "4", "--html", file("folder")}),
                 {"--html", "folder"});
  expect_error(balance({"plan", "--stats", csv(), "--ep-size", "4", "--output",
                        file("absent") + "/plan.yaml"}),
               2, {"absent/plan.yaml"});
}

}  // namespace
}  // namespace wideep::tests
