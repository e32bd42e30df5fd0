// SPDX-License-Identifier: Apache-2.0
//
// Iterations as one rank or two would record them, with their figures worked out by hand: which
// steps count, from where to where a run lasts, that an expert which two ranks choose is counted
// once, that a share is of the limits around its own run. A failure means that a report's share is
// of other work, or of another limit, than it says.
#include "measure/model/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/files.h"

namespace wideep::measure {
namespace {

using kernels::WeightFormat;
using ::testing::HasSubstr;
using Kind = BenchTest::Kind;

constexpr int kExperts = 64;

model::ModelConfig small_config() {
  const std::string path = WIDEEP_SOURCE_DIR "/bench/configs/qwen3-moe-1.3b.json";
  return model::parse_model_config(*formats::read_file(path), path).value();
}

// Of a model with one MoE layer.
engine::IterationRecord iteration(int64_t end_ms, int64_t prompt, int64_t generated,
                                  const std::vector<int>& experts) {
  engine::IterationRecord result;
  result.end_ns = end_ms * 1'000'000;
  result.prompt_tokens = prompt;
  result.generated_tokens = generated;
  result.layers.resize(1);
  result.layers[0].counts.resize(kExperts);
  for (const int expert : experts) result.layers[0].counts[expert] = 1;
  return result;
}

// The iterations of a run, as one rank recorded them.
struct RankRun {
  int64_t start_ns = 0;
  std::vector<engine::IterationRecord> iterations;
};

// The same, as several ranks recorded them.
std::vector<run::Iteration> run_of(const std::vector<RankRun>& ranks) {
  std::vector<run::Iteration> run(ranks[0].iterations.size());
  for (size_t i = 0; i < run.size(); ++i) {
    for (const RankRun& rank : ranks) {
      run[i].ranks.push_back(rank.iterations[i]);
      if (i == 0) run[i].ranks.back().begin_ns = rank.start_ns;
    }
  }
  return run;
}

TEST(FigureOf, MedianAndEnds) {
  const Figure odd = figure_of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.low, 1);
  EXPECT_EQ(odd.high, 3);
  EXPECT_EQ(figure_of({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(figure_of({7}).median, 7);
}

TEST(SampleOf, PrefillIsTheWholeRun) {
  const BenchTest test{Kind::kPrefill, 2, 100, 1};
  const RankRun a{.start_ns = 1'000'000,
                  .iterations = {iteration(11, 60, 0, {1}), iteration(21, 40, 1, {2})}};
  const RankRun b{.start_ns = 2'000'000,
                  .iterations = {iteration(12, 60, 0, {1, 3}), iteration(20, 40, 1, {2})}};
  const auto sample = sample_of(small_config(), WeightFormat::kBf16, test, run_of({a, b}));
  ASSERT_TRUE(sample.ok());
  EXPECT_EQ(sample->tokens, 200);
  EXPECT_EQ(sample->steps, 2);
  EXPECT_DOUBLE_EQ(sample->seconds, 0.019);  // from the last to start to the last to end
  EXPECT_EQ(sample->experts_hit, 3);         // 1 and 3, then 2: not once per rank
}

TEST(SampleOf, DecodeCountsOnlyStepsOfAllSequences) {
  const BenchTest test{Kind::kDecode, 4, 10, 2};
  const RankRun a{.start_ns = 0,
                  .iterations = {iteration(50, 20, 2, {9}), iteration(60, 0, 2, {9}),
                                 iteration(63, 0, 2, {1}), iteration(67, 0, 2, {2})}};
  const RankRun b{.start_ns = 0,
                  .iterations = {iteration(50, 10, 1, {9}), iteration(60, 10, 2, {9}),
                                 iteration(62, 0, 2, {1}), iteration(67, 0, 2, {3})}};
  const model::ModelConfig config = small_config();
  const auto sample = sample_of(config, WeightFormat::kBf16, test, run_of({a, b}));
  ASSERT_TRUE(sample.ok());
  EXPECT_EQ(sample->steps, 2);
  EXPECT_EQ(sample->tokens, 8);
  EXPECT_DOUBLE_EQ(sample->seconds, 0.007);
  EXPECT_EQ(sample->experts_hit, 3);
  // Before the first step 40 tokens of prompts and 7 generated, of which the latest 4 are not yet
  // in the cache; 4 more before the second.
  model::StepShape shape{.num_tokens = 8,
                         .num_logit_rows = 8,
                         .attended = 47 + 51,
                         .cached = 43 + 47,
                         .num_cached = 4 + 4,
                         .experts_hit = 3};
  const model::Work expected = model::work_of(config, WeightFormat::kBf16, shape, 2);
  EXPECT_DOUBLE_EQ(sample->work.bytes, expected.bytes);
  EXPECT_DOUBLE_EQ(sample->work.operations, expected.operations);
}

TEST(SampleOf, FailsIfTheRunIsTooShort) {
  const BenchTest test{Kind::kDecode, 1, 10, 2};
  const RankRun run{.start_ns = 0, .iterations = {iteration(1, 10, 1, {}), iteration(2, 0, 1, {})}};
  const auto sample = sample_of(small_config(), WeightFormat::kBf16, test, run_of({run}));
  ASSERT_FALSE(sample.ok());
  EXPECT_THAT(sample.status().message(), HasSubstr("decode x1: measured 1 of 2 steps"));
}

QuickLimits quick(double read_gbps, double gops) {
  return {.read_gbps = read_gbps, .gops = gops, .operation = limits::Operation::kBf16};
}

TEST(ReportOf, ShareIsOfTheLimitsAroundEachRun) {
  const BenchTest test{Kind::kDecode, 1, 10, 1};
  BenchSample sample{.tokens = 1, .steps = 1, .seconds = 0.1, .work = {1e9, 3e9}};
  const TestReport report =
      report_of(small_config(), test, {sample, sample},
                {{quick(30, 1000), quick(50, 1000)}, {quick(50, 1000), quick(70, 1000)}});
  EXPECT_EQ(report.bound, Bound::kRead);
  EXPECT_DOUBLE_EQ(report.tokens_per_second.median, 10);
  EXPECT_DOUBLE_EQ(report.achieved.median, 30);
  EXPECT_DOUBLE_EQ(report.limit.low, 40);
  EXPECT_DOUBLE_EQ(report.limit.high, 60);
  EXPECT_DOUBLE_EQ(report.share.high, 0.75);
  EXPECT_DOUBLE_EQ(report.share.low, 0.5);
}

TEST(ReportOf, TheSlowerLimitIsTheBound) {
  const BenchTest test{Kind::kPrefill, 1, 512, 1};
  BenchSample sample{.tokens = 512, .steps = 1, .seconds = 0.5, .work = {200e9, 2.5e9}};
  const TestReport report =
      report_of(small_config(), test, {sample}, {{quick(50, 1000), quick(50, 1000)}});
  EXPECT_EQ(report.bound, Bound::kCompute);
  EXPECT_DOUBLE_EQ(report.achieved.median, 400);
  EXPECT_DOUBLE_EQ(report.share.median, 0.4);
}

TEST(OperationOf, WhatTheProcessorHas) {
  limits::Limits limits{.f32_gops = 1, .bf16_gops = 2, .int8_gops = 4};
  EXPECT_EQ(operation_of(WeightFormat::kBf16, limits), limits::Operation::kBf16);
  EXPECT_EQ(operation_of(WeightFormat::kF32, limits), limits::Operation::kF32);
  EXPECT_EQ(operation_of(WeightFormat::kInt8, limits), limits::Operation::kInt8);
  EXPECT_EQ(operation_of(WeightFormat::kFp8, limits), limits::Operation::kBf16);
  limits.bf16_gops = 0;
  EXPECT_EQ(operation_of(WeightFormat::kBf16, limits), limits::Operation::kF32);
}

}  // namespace
}  // namespace wideep::measure
