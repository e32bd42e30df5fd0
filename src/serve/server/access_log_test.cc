// SPDX-License-Identifier: Apache-2.0
#include "server/access_log.h"

#include <gtest/gtest.h>

#include <string>

namespace wideep::server {
namespace {

std::string line_of(const RequestRecord& record) {
  const auto fields = access_fields(record);
  return log::formatted({.text = "access", .fields = fields}, log::Form::kBare, std::nullopt, 0);
}

TEST(AccessLog, ARequestForText) {
  RequestRecord record{.id = "abc",
                       .client = "127.0.0.1:4000",
                       .method = "POST",
                       .path = "/v1/completions",
                       .status = 200,
                       .came_ns = 1'000'000'000,
                       .ended_ns = 3'500'000'000,
                       .is_whole = true};
  record.text = TextWork{.prompt_tokens = 7,
                         .cached_tokens = 2,
                         .generated_tokens = 9,
                         .first_token_ns = 1'250'000'000};
  EXPECT_EQ(line_of(record),
            "access request_id=abc client=127.0.0.1:4000 method=POST path=/v1/completions "
            "status=200 prompt_tokens=7 cached_tokens=2 generated_tokens=9 "
            "time_to_first_token_seconds=0.250000 seconds=2.500000\n");
  record.text->is_resumed = true;  // by another process: nobody knows when the first one came
  EXPECT_EQ(line_of(record).find("time_to_first_token"), std::string::npos);
}

// Its status was sent before.
TEST(AccessLog, AStreamThatFails) {
  const RequestRecord record{.id = "abc",
                             .client = "c:1",
                             .method = "POST",
                             .path = "/",
                             .status = 200,
                             .ended_ns = 1000,
                             .is_whole = true,
                             .error = "ranks_died"};
  EXPECT_EQ(line_of(record),
            "access request_id=abc client=c:1 method=POST path=/ status=200 error=ranks_died "
            "seconds=0.000001\n");
}

TEST(AccessLog, ADividedRequest) {
  RequestRecord record{.id = "abc",
                       .client = "c:1",
                       .method = "POST",
                       .path = "/",
                       .status = 200,
                       .ended_ns = 4'000'000'000,
                       .is_whole = true,
                       .replica = "http://d:1"};
  record.prefill = PrefillPart{.replica = "http://p:1", .begin_ns = 0, .end_ns = 1'500'000'000};
  EXPECT_EQ(line_of(record),
            "access request_id=abc client=c:1 method=POST path=/ status=200 replica=http://d:1 "
            "prefill_replica=http://p:1 prefill_seconds=1.500000 seconds=4.000000\n");
  record.prefill->end_ns = 0;  // the answer was there before
  EXPECT_EQ(line_of(record).find("prefill_seconds"), std::string::npos);
}

TEST(AccessLog, AClientThatLeaves) {
  const RequestRecord record{
      .id = "abc", .client = "[::1]:4000", .method = "GET", .path = "/a\nb\xff", .ended_ns = 1000};
  EXPECT_EQ(line_of(record),
            "access request_id=abc client=[::1]:4000 method=GET path=/a\\nb\\xff status=499 "
            "cut=true seconds=0.000001\n");
}

}  // namespace
}  // namespace wideep::server
