// SPDX-License-Identifier: Apache-2.0
//
// A log-probability that differs in its last bit, anywhere, is found and named. A failure means
// that `wideep bench accuracy` calls layouts equal that are not.
#include "measure/accuracy/scored_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace wideep::measure {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json file() {
  return {{"version", "0.4.10"},
          {"table", "|acc|0.5|\n"},
          {"results", {{"task", {{"acc,none", 0.5}}}}},
          {"requests",
           {{{"prompt", {5, 6, 7}},
             {"text", "The old man"},
             {"token_logprobs", {nullptr, -1.25, -0.3333333432674408}},
             {"top_logprobs", {nullptr, {{"old", -1.25}}, {{"man", -0.3}, {"woman", -0.7}}}}},
            {{"prompt", "A text"}, {"text", " and its answer"}}}}};
}

NamedEvaluation named(const char* layout, const json& from) {
  return {layout, parse_evaluation(from.dump()).value()};
}

std::string complaint(const json& other) {
  const Status status = check_same_bits(named("--ranks 1", file()), named("--ranks 2", other));
  EXPECT_FALSE(status.ok());
  return status.message();
}

TEST(ScoredRequests, EqualOnesAreEqualAndCounted) {
  EXPECT_TRUE(check_same_bits(named("a", file()), named("b", file())).ok());
  EXPECT_EQ(named("a", file()).evaluation.num_logprobs(), 2);
}

TEST(ScoredRequests, OneBitIsFoundAndNamed) {
  json other = file();
  json& logprob = other["requests"][0]["token_logprobs"][2];
  logprob = std::nextafter(logprob.get<double>(), 0.0);
  EXPECT_EQ(complaint(other),
            "request 0 of 2 (3 tokens, \"The old man\"): token 2: expected the log-probability "
            "-0.3333333432674408 as with --ranks 1, found -0.33333334326744074 with --ranks 2");
  other = file();
  other["requests"][0]["top_logprobs"][2]["woman"] = -0.71;
  EXPECT_THAT(complaint(other), AllOf(HasSubstr("token 2, likely tokens"), HasSubstr("-0.71")));
  other = file();
  other["requests"][1]["text"] = " and another";
  EXPECT_THAT(complaint(other), AllOf(HasSubstr("request 1 of 2"), HasSubstr("its text")));
  other = file();
  other["requests"][0]["prompt"][1] = 9;
  EXPECT_THAT(complaint(other), HasSubstr("[5,6,7]"));
  other = file();
  other["requests"].erase(1);
  EXPECT_THAT(complaint(other), HasSubstr("expected 2 requests"));
  other = file();
  other["requests"][0]["token_logprobs"][0] = 0.0;  // none is no zero
  EXPECT_THAT(complaint(other), HasSubstr("expected the log-probability none"));
}

TEST(ScoredRequests, OtherFilesAreRefused) {
  EXPECT_FALSE(parse_evaluation("{").ok());
  for (const char* name : {"version", "table", "results", "requests"}) {
    json without = file();
    without.erase(name);
    EXPECT_THAT(parse_evaluation(without.dump()).status().message(), HasSubstr("expected"));
  }
  json wrong = file();
  wrong["requests"][0]["token_logprobs"][1] = "x";
  EXPECT_THAT(parse_evaluation(wrong.dump()).status().message(),
              HasSubstr("requests[0].token_logprobs: expected numbers"));
  wrong = file();
  wrong["requests"][0]["top_logprobs"].erase(1);
  EXPECT_FALSE(parse_evaluation(wrong.dump()).ok());
}

}  // namespace
}  // namespace wideep::measure
