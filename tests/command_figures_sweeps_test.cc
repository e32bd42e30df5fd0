// SPDX-License-Identifier: Apache-2.0
//
// wideep figures kernels and pareto: what is drawn from files of other commands, counted again from
// those files in another way.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "command_figure.h"
#include "command_machine.h"
#include "command_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class CommandFiguresOfSweeps : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    EXPECT_TRUE(formats::write_file(directory_.file(name), content).ok());
    return directory_.file(name);
  }
  CommandEnd figure(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "figures");
    arguments.insert(arguments.end(), {"--output", directory_.file("figures")});
    return run_command({.arguments = arguments});
  }
  const base::ScratchDirectory directory_;
};

// ---- kernels ----

std::string traced(const base::ScratchDirectory& directory, int ranks) {
  const std::string path = directory.file(fmt::format("trace{}.json", ranks));
  const CommandEnd end =
      run_command(generate(small_model(), {"--max-tokens", "6", "--ranks", std::to_string(ranks),
                                           "--profile-range", "1-5", "--profile-output", path}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  return path;
}

// µs of an iteration, mean over ranks: of all the time in which a rank's forward thread is in any
// span, and of the spans of a name that have none inside.
struct Recount {
  double covered = 0.0;
  std::map<std::string, double> leaves;
};

Recount recount(const std::string& path) {
  const json trace = json::parse(*formats::read_file(path), nullptr, false);
  std::map<int, std::vector<std::pair<double, double>>> spans;  // by rank
  std::map<int, std::map<std::string, double>> sums;
  std::map<int, std::set<int>> iterations;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["tid"] != 0) continue;
    const double start = event["ts"], length = event["dur"];
    spans[event["pid"]].emplace_back(start, start + length);
    sums[event["pid"]][event["name"]] += length;
    iterations[event["pid"]].insert(event["args"]["iteration"].get<int>());
  }
  Recount count;
  const double ranks = static_cast<double>(spans.size());
  for (auto& [rank, all] : spans) {
    const double divisor = ranks * static_cast<double>(iterations[rank].size());
    std::ranges::sort(all);
    double until = -1.0;
    for (const auto& [start, end] : all) {
      count.covered += std::max(0.0, end - std::max(start, until)) / divisor;
      until = std::max(until, end);
    }
    for (const auto& [name, us] : sums[rank]) count.leaves[name] += us / divisor;
  }
  return count;
}

TEST_F(CommandFiguresOfSweeps, KernelsAddUpSpansOfAllRanks) {
  const std::string one = traced(directory_, 1), four = traced(directory_, 4);
  const json shown = drawn_figure({"kernels", one, "four=" + four}, directory_);
  const json& chart = shown["charts"][0];
  ASSERT_EQ(chart["series"].size(), 2u);
  EXPECT_EQ(chart["series"][0]["name"], "EP 1");
  EXPECT_EQ(chart["series"][1]["name"], "four");
  const Recount recounts[] = {recount(one), recount(four)};
  for (size_t column = 0; column < 2; ++column) {
    double sum = 0.0;
    for (size_t i = 0; i < chart["categories"].size(); ++i) {
      const double us = chart["series"][column]["y"][i];
      sum += us;
      for (const char* leaf : {"attention", "experts", "router", "reduce", "wait: results"}) {
        if (chart["categories"][i] != leaf) continue;
        EXPECT_NEAR(us, recounts[column].leaves.at(leaf), 0.02) << leaf;
      }
    }
    EXPECT_GT(sum, 1.0);
    EXPECT_NEAR(sum, recounts[column].covered, 0.05 + 1e-4 * sum);
  }
}

TEST_F(CommandFiguresOfSweeps, KernelsRefusesWhatIsNoTrace) {
  const std::string path = write("no.json", "{}");
  expect_refused(figure({"kernels", path}), {path, "traceEvents"});
  const std::string trace = traced(directory_, 1);
  expect_refused(figure({"kernels", trace, trace}), {"both be the column \"EP 1\"", "LABEL="});
}

// ---- pareto ----

std::string serving_report(double tokens_per_second, double tpot) {
  return fmt::format(R"({{"completed": 4, "input_tokens": 400, "output_tokens": 200,)"
                     R"("output_tokens_per_second": {}, "tpot_seconds": {{"mean": {}}}}})",
                     tokens_per_second, tpot);
}

std::string throughput_report(double per_rank, double per_user) {
  return fmt::format(
      R"({{"world_info": {{"tp_size": 2, "pp_size": 1, "ep_size": 2, "world_size": 2}},)"
      R"("request_info": {{"avg_input_length": 100.2, "avg_output_length": 50}},)"
      R"("performance": {{"output_throughput_per_gpu_tok_s": {},)"
      R"("output_throughput_per_user_tok_s": 1.0}},)"
      R"("streaming_metrics": {{"token_output_speed_tok_s": {}}}, "decoding_stats": null}})",
      per_rank, per_user);
}

using Point = std::pair<double, double>;  // of a user, of a rank

std::set<Point> points_of(const json& series) {
  std::set<Point> points;
  for (size_t i = 0; i < series["x"].size(); ++i) points.emplace(series["x"][i], series["y"][i]);
  return points;
}

// Every pair compared with every other.
std::set<Point> front_by_pairs(const std::set<Point>& points) {
  std::set<Point> front;
  for (const Point& point : points) {
    const bool beaten = std::ranges::any_of(points, [&](const Point& other) {
      return other != point && other.first >= point.first && other.second >= point.second;
    });
    if (!beaten) front.insert(point);
  }
  return front;
}

void expect_fronts(const json& fronts, const json& all) {
  ASSERT_EQ(fronts["series"].size(), all["series"].size());
  for (size_t i = 0; i < all["series"].size(); ++i) {
    EXPECT_EQ(fronts["series"][i]["name"], all["series"][i]["name"]);
    EXPECT_EQ(points_of(fronts["series"][i]), front_by_pairs(points_of(all["series"][i])));
  }
}

TEST_F(CommandFiguresOfSweeps, ParetoReadsReportsOfSweeps) {
  std::vector<std::string> arguments = {"pareto", "--baselines", "2"};
  // Four points of EP 4, of which one is beaten, and one with drafts.
  const Point served[] = {{10, 200}, {20, 100}, {15, 90}, {5, 260}};
  for (size_t i = 0; i < 4; ++i) {
    arguments.push_back(write(fmt::format("ep-4.drafts-0.100-50.concurrency-{}.json", i),
                              serving_report(4 * served[i].second, 1.0 / served[i].first)));
  }
  arguments.push_back(write("ep-4.drafts-3.100-50.concurrency-1.json", serving_report(1200, 0.04)));
  arguments.push_back(write("small.json", throughput_report(80, 12)));
  const json shown = drawn_figure(arguments, directory_);
  ASSERT_EQ(shown["charts"].size(), 2u);  // 100/50 alone, measured by both benchmarks
  const json &fronts = shown["charts"][0], &all = shown["charts"][1];
  ASSERT_EQ(all["series"].size(), 3u);
  EXPECT_EQ(all["series"][0]["name"], "EP 2");
  EXPECT_EQ(points_of(all["series"][0]), (std::set<Point>{{12, 80}}));
  EXPECT_EQ(all["series"][1]["name"], "EP 4");
  EXPECT_EQ(all["series"][1]["x"].size(), 4u);
  EXPECT_EQ(fronts["series"][1]["x"].size(), 3u);
  EXPECT_EQ(all["series"][2]["name"], "EP 4, 3 drafts");
  EXPECT_EQ(points_of(all["series"][2]), (std::set<Point>{{25, 300}}));
  expect_fronts(fronts, all);
  // EP 4 with drafts has 300 where EP 2 has 80.
  const json& gain = shown["tables"][0]["rows"][0];
  EXPECT_EQ(gain[2], 4);
  EXPECT_NEAR(gain[3].get<double>(), 300.0 / 80.0, 1e-9);
}

TEST_F(CommandFiguresOfSweeps, ParetoPredictsFronts) {
  const std::string machine = write("machine.yaml", kMachine);
  const json shown = drawn_figure({"pareto", "--model", small_model(), "--hardware", machine,
                                   "--dtype", "bf16", "--lengths", "16/16,32/16", "--ep", "1,2,4",
                                   "--baselines", "1", "--acceptance", "0.8", "--drafts-max", "1"},
                                  directory_);
  ASSERT_EQ(shown["charts"].size(), 4u);
  std::set<std::string> names;
  for (const json& series : shown["charts"][0]["series"]) names.insert(series["name"]);
  for (const int ep : {1, 2, 4}) {
    EXPECT_TRUE(names.contains(fmt::format("EP {}, predicted, machine", ep)));
    EXPECT_TRUE(names.contains(fmt::format("EP {}, 1 draft, predicted, machine", ep)));
  }
  expect_fronts(shown["charts"][0], shown["charts"][1]);
  expect_fronts(shown["charts"][2], shown["charts"][3]);

  // The table's ratio for EP 4, by every speed that any point has.
  std::vector<Point> base, four;
  for (const json& series : shown["charts"][1]["series"]) {
    const std::string name = series["name"];
    auto& of = name.starts_with("EP 1,") ? base : four;
    if (name.starts_with("EP 2,")) continue;
    for (const Point& point : points_of(series)) of.push_back(point);
  }
  const auto at = [](const std::vector<Point>& points, double speed) {
    double best = 0.0;
    for (const Point& point : points) {
      if (point.first >= speed) best = std::max(best, point.second);
    }
    return best;
  };
  double most = 0.0;
  for (const auto* points : {&base, &four}) {
    for (const Point& point : *points) {
      if (at(base, point.first) > 0.0) {
        most = std::max(most, at(four, point.first) / at(base, point.first));
      }
    }
  }
  double found = 0.0;
  for (const json& row : shown["tables"][0]["rows"]) {
    if (row[0] == "16/16" && row[2] == 4) found = row[3];
  }
  EXPECT_GT(found, 0.0);
  EXPECT_NEAR(found, most, 1e-9);
}

TEST_F(CommandFiguresOfSweeps, ParetoRefusesWhatItCannotPlace) {
  expect_refused(figure({"pareto"}), {"give reports", "--model"});
  expect_refused(figure({"pareto", write("a.json", serving_report(1, 1))}), {"a.json", "ep-RANKS"});
  expect_refused(figure({"pareto", write("b.json", "{}")}), {"b.json", "expected a report"});
  expect_refused(figure({"pareto", write("ep-2.json", serving_report(1, 0))}),
                 {"ep-2.json", "tpot_seconds"});
  expect_refused(
      figure({"pareto", write("c.json", throughput_report(1, 1)), "--acceptance", "0.5"}),
      {"--acceptance", "without --model"});
  expect_refused(
      figure({"pareto", "--model", small_model(), "--hardware", "gb200", "--lengths", "16"}),
      {"--lengths", "found \"16\""});
}

}  // namespace
}  // namespace wideep::tests
