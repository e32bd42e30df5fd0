// SPDX-License-Identifier: Apache-2.0
#include "measure/serving/throughput_report.h"

#include <gtest/gtest.h>

namespace wideep::measure {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(ThroughputReport, FiguresAreThoseOfTheTokens) {
  const std::vector<RequestTimes> requests = {
      {.input_tokens = 5,
       .start_ns = 100 * kMs,
       .token_ns = {110 * kMs, 120 * kMs, 140 * kMs},
       .tokens = {1, 2, 3}},
      {.input_tokens = 7, .start_ns = 120 * kMs, .token_ns = {180 * kMs}, .tokens = {4}}};
  const ThroughputReport report = report_of(requests);
  EXPECT_EQ(report.num_requests, 2);
  EXPECT_EQ(report.input_tokens, 12);
  EXPECT_EQ(report.output_tokens, 4);
  EXPECT_DOUBLE_EQ(report.total_ms, 80.0);
  EXPECT_DOUBLE_EQ(report.per_second(4), 50.0);
  EXPECT_DOUBLE_EQ(report.latency_ms.minimum, 40.0);
  EXPECT_DOUBLE_EQ(report.latency_ms.maximum, 60.0);
  EXPECT_DOUBLE_EQ(report.avg_concurrent_requests, 100.0 / 80.0);
  EXPECT_DOUBLE_EQ(report.issue_rate_req_s.value(), 100.0);  // 2 in 20 ms
  EXPECT_DOUBLE_EQ(report.ttft_ms.mean, 35.0);
  EXPECT_DOUBLE_EQ(report.tpot_ms.mean, 15.0);  // of the first request only
  EXPECT_DOUBLE_EQ(report.itl_ms.minimum, 10.0);
  EXPECT_DOUBLE_EQ(report.itl_ms.maximum, 20.0);
  EXPECT_DOUBLE_EQ(report.user_speed.mean, 2 / 0.030);
  EXPECT_DOUBLE_EQ(report.output_per_user, (3 / 0.040 + 1 / 0.060) / 2);
}

TEST(ThroughputReport, OneRequestHasNoIssueRate) {
  const std::vector<RequestTimes> one = {
      {.input_tokens = 1, .start_ns = 1 * kMs, .token_ns = {2 * kMs}, .tokens = {1}}};
  const ThroughputReport report = report_of(one);
  EXPECT_FALSE(report.issue_rate_req_s.has_value());
  EXPECT_EQ(report.tpot_ms.maximum, 0.0);
}

}  // namespace
}  // namespace wideep::measure
