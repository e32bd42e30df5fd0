// SPDX-License-Identifier: Apache-2.0
// What reports and names say of a point. Fronts are checked by pairs in tests/command_figures_*.
#include "measure/serving/sweep_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::measure {
namespace {

using testing::HasSubstr;

class SweepPoints : public testing::Test {
 protected:
  Result<std::vector<SweepPoint>> read(const std::string& name, const std::string& content) {
    EXPECT_TRUE(formats::write_file(directory_.file(name), content).ok());
    return read_sweep_points(directory_.file(name));
  }
  std::string error(const std::string& name, const std::string& content) {
    const auto points = read(name, content);
    return points.ok() ? "none" : points.status().message();
  }
  const base::ScratchDirectory directory_;
};

TEST_F(SweepPoints, ReadsBenchModel) {
  const auto points = read("a.json", R"({"ranks": 4, "tests": [
      {"name": "prefill 512", "tokens_per_second": {"median": 900}},
      {"name": "decode x8", "tokens_per_second": {"median": 80}}]})");
  ASSERT_TRUE(points.ok()) << points.status().message();
  ASSERT_EQ(points->size(), 1u);
  EXPECT_EQ(points->front().ranks, 4);
  EXPECT_EQ(points->front().tokens_per_rank, 20.0);
  EXPECT_EQ(points->front().tokens_per_user, 10.0);
  EXPECT_THAT(error("b.json", R"({"ranks": 4, "tests": []})"), HasSubstr("no decode test"));
}

TEST_F(SweepPoints, ReadsIterationLogsByTheirNames) {
  const std::string line =
      R"({"timestamp": "2026-01-31T12:00:0X.000000Z", "iterLatencyMS": 1000, "numActiveRequests": 8,)"
      R"( "inflightBatchingStats": {"numScheduledRequests": 8, "numCtxTokens": 0,)"
      R"( "numGeneratedTokens": 16}, "imbalanceRatio": 0, "criticalPathMS": 1, "expertMoves": 0,)"
      R"( "movedBytes": 0})";
  std::string log;
  for (const char second : {'1', '2'}) {
    log += line + "\n";
    log.replace(log.rfind('X'), 1, 1, second);
  }
  const auto points = read("ep-4.drafts-1.1024-64.concurrency-8.jsonl", log);
  ASSERT_TRUE(points.ok()) << points.status().message();
  const SweepPoint& point = points->front();
  EXPECT_EQ(point.ep, 4);
  EXPECT_EQ(point.drafts, "1 draft");
  EXPECT_EQ(point.lengths, "1024/64");
  EXPECT_NEAR(point.tokens_per_rank, 4.0, 1e-6);  // 32 tokens in 2 s
  EXPECT_NEAR(point.tokens_per_user, 2.0, 1e-6);
  EXPECT_THAT(error("a.jsonl", log), HasSubstr("ep-RANKS"));
}

TEST_F(SweepPoints, ReadsAdvice) {
  const auto points = read("a.json", R"({"pareto": [{"ranks": 8, "ep": 4, "drafts": 2,
      "attention_dp": true, "num_slots": 288, "dtype": "fp8", "tokens_per_second_per_rank": 5,
      "tokens_per_second_per_user": 7}]})");
  ASSERT_TRUE(points.ok()) << points.status().message();
  EXPECT_TRUE(points->front().predicted);
  EXPECT_EQ(points->front().ep, 4);
  EXPECT_EQ(points->front().drafts, "2 drafts");
  EXPECT_EQ(points->front().layout, "attention DP, 288 slots, fp8");
  const auto dense = read("d.json", R"({"pareto": [{"ranks": 8, "ep": 1, "attention_dp": false,
      "num_slots": 0, "dtype": "bf16", "tokens_per_second_per_rank": 5,
      "tokens_per_second_per_user": 7}]})");
  ASSERT_TRUE(dense.ok()) << dense.status().message();
  EXPECT_EQ(dense->front().layout, "TP, bf16");
  EXPECT_THAT(error("b.json", R"({"pareto": [{"ranks": 8}]})"), HasSubstr("pareto[0].ep"));
  EXPECT_THAT(error("c.json", R"({"pareto": [7]})"), HasSubstr("pareto[0]: expected an object"));
  EXPECT_THAT(error("d.json", R"({"ranks": 2, "tests": [{"name": 5}, "x"]})"),
              HasSubstr("tests: has no decode test"));
}

TEST(LargestGain, ComparesAtSpeedsThatBothReach) {
  const auto point = [](double user, double rank) {
    return SweepPoint{.tokens_per_user = user, .tokens_per_rank = rank};
  };
  const std::vector<SweepPoint> base = {point(10, 100), point(20, 10)};
  // At 20 the other has five times as much, at 5 nine times.
  const FrontGain gain = largest_gain({point(25, 50), point(5, 900)}, base);
  EXPECT_NEAR(gain.ratio, 9.0, 1e-12);  // at up to 5: 900 against 100
  EXPECT_EQ(gain.tokens_per_user, 5.0);
  EXPECT_EQ(largest_gain({point(30, 50)}, {point(20, 10)}).ratio, 5.0);
  EXPECT_EQ(largest_gain({}, base).ratio, 0.0);
}

}  // namespace
}  // namespace wideep::measure
