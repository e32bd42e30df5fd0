// SPDX-License-Identifier: Apache-2.0
#include "measure/serving/iteration_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/scratch_directory.h"

namespace wideep::measure {
namespace {

using testing::HasSubstr;

std::string line_of(const char* time, double latency, int prompt, int generated, double imbalance,
                    int moves) {
  return std::string(R"({"timestamp":")") + time + R"(","iterLatencyMS":)" +
         std::to_string(latency) + R"(,"numActiveRequests":)" + std::to_string(generated) +
         R"(,"inflightBatchingStats":{"numScheduledRequests":)" + std::to_string(generated) +
         R"(,"numCtxTokens":)" + std::to_string(prompt) + R"(,"numGeneratedTokens":)" +
         std::to_string(generated) + R"(},"imbalanceRatio":)" + std::to_string(imbalance) +
         R"(,"criticalPathMS":)" + std::to_string(latency / 2) + R"(,"expertMoves":)" +
         std::to_string(moves) + R"(,"movedBytes":)" + std::to_string(moves * 10) + "}\n";
}

class IterationReportTest : public testing::Test {
 protected:
  Result<IterationLogSummary> summarize(const std::string& text) {
    const std::string path = directory_.file("concurrency-4.jsonl");
    std::ofstream(path) << text;
    return summarize_iterations(path);
  }
  base::ScratchDirectory directory_;
};

TEST_F(IterationReportTest, LinesAddUp) {
  const auto found = summarize(line_of("2026-01-31T23:59:59.500000Z", 500.0, 10, 4, 0.5, 0) +
                               line_of("2026-02-01T00:00:00.500000Z", 100.0, 0, 4, 0.25, 3) + "\n" +
                               line_of("2026-02-01T00:00:01.000000Z", 300.0, 0, 0, 0.0, 2));
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->name, "concurrency-4");
  EXPECT_EQ(found->iterations, 3);
  EXPECT_EQ(found->prompt_tokens, 10);
  EXPECT_EQ(found->generated_tokens, 8);
  EXPECT_NEAR(found->seconds, 2.0, 1e-6);
  EXPECT_NEAR(found->tokens_per_second(), 4.0, 1e-5);
  EXPECT_NEAR(found->active_requests, 8.0 / 3, 1e-9);
  EXPECT_DOUBLE_EQ(found->latency_ms.median, 300.0);
  EXPECT_DOUBLE_EQ(found->longest_ms, 500.0);
  EXPECT_DOUBLE_EQ(found->imbalance_ratio, 0.375);  // the last iteration has no tokens
  EXPECT_DOUBLE_EQ(found->critical_path_ms, 150.0);
  EXPECT_EQ(found->expert_moves, 5);
  EXPECT_EQ(found->moved_bytes, 50);
}

TEST_F(IterationReportTest, ErrorsNameTheLine) {
  const std::string good = line_of("2026-01-31T23:59:59.500000Z", 500.0, 10, 4, 0.5, 0);
  const auto refuses = [&](const std::string& text, const char* what) {
    const auto found = summarize(text);
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_THAT(found.status().message(), HasSubstr("concurrency-4.jsonl"));
    EXPECT_THAT(found.status().message(), HasSubstr(what));
    EXPECT_EQ(found.status().exit_code(), 2);
  };
  refuses("", "no iterations");
  refuses(good + "{\n", ":2");
  refuses("[1]\n", ":1: expected an object");
  refuses("{}\n", "iterLatencyMS: expected a number, found nothing");
  refuses(R"({"iterLatencyMS": "fast"})", "found 'fast'");
  refuses(R"({"iterLatencyMS": 1, "timestamp": "noon"})", "timestamp");
  refuses(R"({"iterLatencyMS": 1, "timestamp": "2026-01-31T12:00:00Z"})", "inflightBatchingStats");
  EXPECT_FALSE(summarize_iterations(directory_.file("none")).ok());

  const auto with = [&](const std::string& found, const std::string& other) {
    std::string text = good;
    return text.replace(text.find(found), found.size(), other);
  };
  refuses(with(R"("numGeneratedTokens":4)", R"("numGeneratedTokens":1e300)"),
          "numGeneratedTokens: expected 0 to 2^53, found 1e+300");
  refuses(with(R"("expertMoves":0)", R"("expertMoves":-1)"), "expertMoves: expected 0 to 2^53");
  std::string many;
  for (int i = 0; i < 1025; ++i)
    many += with(R"("movedBytes":0)", R"("movedBytes":9007199254740992)");
  refuses(many, ":1024: movedBytes: the sum of all lines is over 2^63");
  for (const char* time : {"2147483647-01-31T12:00:00Z", "2026-01-31T12:00:nanZ"}) {
    refuses(line_of(time, 1.0, 1, 1, 0.0, 0), "timestamp");
  }
}

}  // namespace
}  // namespace wideep::measure
