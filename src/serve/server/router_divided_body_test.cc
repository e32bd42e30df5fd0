// SPDX-License-Identifier: Apache-2.0
#include "server/router_divided_body.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace wideep::server {
namespace {

using nlohmann::json;

constexpr auto kFirst = ScheduleStyle::kGenerationFirst;

TEST(RouterDividedBody, BothAreTheClientsWithAMemberMore) {
  const std::string body =
      " { \"stream\" : true, \"messages\": [{\"role\": \"user\", \"content\": \"a, \\\"b\\\" }\"}],"
      "\n\"stream_options\": {\"include_usage\": true}, \"seed\": 12345678901234567890, \"store\":"
      "true, \"temperature\": 0.10 }";
  ASSERT_TRUE(can_divide(body));
  const std::string params = generation_params(7, "1;h:1;t;ab;;", kFirst);
  const std::string generation = generation_body(body, params);
  EXPECT_TRUE(generation.ends_with(body.substr(2)));  // as it was
  json expected = json::parse(body);
  expected["disaggregated_params"] = {{"request_type", "generation_only"},
                                      {"disagg_request_id", 7},
                                      {"ctx_request_id", 7},
                                      {"encoded_opaque_state", "1;h:1;t;ab;;"},
                                      {"schedule_style", "generation_first"}};
  EXPECT_EQ(json::parse(generation), expected);
  const std::string context = context_body(body, {.request_id = 7, .style = kFirst});
  expected["disaggregated_params"] = {{"request_type", "context_only"},
                                      {"disagg_request_id", 7},
                                      {"schedule_style", "generation_first"}};
  for (const char* gone : {"stream", "stream_options", "store"}) expected.erase(gone);
  EXPECT_EQ(json::parse(context), expected);
  EXPECT_NE(context.find("\"temperature\": 0.10"), context.npos);
  expected["disaggregated_params"]["encoded_opaque_state"] = "1;d:1;t;ab;;";
  EXPECT_EQ(json::parse(
                context_body(body, {.request_id = 7, .style = kFirst, .earlier = "1;d:1;t;ab;;"})),
            expected);
}

TEST(RouterDividedBody, MembersAreCutWhereverTheyStand) {
  for (const char* body :
       {R"({"prompt":"x"})", R"({"prompt":"x","stream":true})", R"({"stream":true,"prompt":"x"})",
        R"({"stream":false,"prompt":"x","stream":true})",
        R"({"stream":true,"stream_options":null,"prompt":"x"})"}) {
    ASSERT_TRUE(can_divide(body)) << body;
    const json context = json::parse(context_body(body, {.request_id = 1, .style = kFirst}));
    EXPECT_EQ(context.size(), 2u) << body;
    EXPECT_EQ(context["prompt"], "x");
    EXPECT_EQ(json::parse(generation_body(body, "{}"))["prompt"], "x");
  }
}

TEST(RouterDividedBody, SomeAreForOneServer) {
  EXPECT_TRUE(can_divide(R"({"prompt": "x", "prompt_logprobs": null, "echo": true})"));
  EXPECT_TRUE(can_divide(R"({"prompt": "x", "logprobs": 3, "echo": false})"));
  EXPECT_TRUE(can_divide(R"({"prompt": {"disaggregated_params": {}}})"));
  for (const char* one :
       {R"({"prompt": ["x, \", [y]\\"], "n": 1})", R"({"prompt": [[1, 2]], "n": null})",
        R"({"prompt": [ 1, 2], "best_of": 1})", R"({"prompt": []})",
        R"({"input": [{"a": 1}, {"a": 2}]})", "{\"prompt\": \"x\"} \r\n"}) {
    EXPECT_TRUE(can_divide(one)) << one;
  }
  for (const char* body :
       {R"({"prompt": "x", "disaggregated_params": {"request_type": "context_only"}})",
        R"({"prompt": "x", "disaggregated_params": null})", "{}",
        R"({"prompt": "x", "kv_transfer_params": {"do_remote_decode": true}})",
        R"({"prompt": "x", "prompt_logprobs": 0})",
        R"({"prompt": "x", "logprobs": 0, "echo": true})",
        R"({"input": "x", "previous_response_id": "r"})", R"({"prompt": "x", "str\u0065am": true})",
        R"({"prompt": "x", "n": 2})", R"({"prompt": ["x", "y"]})", R"({"prompt": [[1], [2]]})",
        R"({"prompt": ["x\\"", "y"]})", R"({"prompt": "x"} x)", R"({"prompt": "x"}{})",
        R"({"prompt": "x")", R"({"prompt": "x" "stream": true})", "[]", "", "{\"a"}) {
    EXPECT_FALSE(can_divide(body)) << body;
  }
}

TEST(RouterDividedBody, ParametersOfClientsAreSeenHoweverTheyAreWritten) {
  for (const char* body :
       {R"({"prompt": "x", "disaggregated_params": {"request_type": "context_only"}})",
        R"({"disaggregated_params" : 7 , "prompt": "x"})",
        R"({"a": [{"b": "}"}], "\u0064isaggregated\u005fparams": {}})",
        "\xef\xbb\xbf{\"disaggregated_params\": {}}"}) {
    EXPECT_EQ(shared_params_in(body), "disaggregated_params") << body;
  }
  EXPECT_EQ(shared_params_in(R"({"kv_transfer_params": {"do_remote_decode": true}})"),
            "kv_transfer_params");
  for (const char* body : {R"({"prompt": {"disaggregated_params": {}}})", "{}", "[", "",
                           R"({"disaggregated_params": null, "kv_transfer_params": null })",
                           R"({"prompt": "\"disaggregated_params\": {}"})"}) {
    EXPECT_EQ(shared_params_in(body), "") << body;
  }
}

TEST(RouterDividedBody, RepliesSayWhatTheNextServerIsTold) {
  const std::string params =
      R"({"request_type": "context_only", "first_gen_tokens": [5], "ctx_request_id": 9})";
  for (const std::string& reply :
       {R"({"choices": [{"text": "", "disaggregated_params": )" + params + "}]}",
        R"({"id": "r", "disaggregated_params": )" + params + "}"}) {
    const auto found = generation_params_of(reply);
    ASSERT_TRUE(found) << reply;
    EXPECT_EQ(json::parse(*found), json({{"request_type", "generation_only"},
                                         {"first_gen_tokens", {5}},
                                         {"ctx_request_id", 9}}));
  }
  for (const char* reply : {"", "{", "[]", "{}", R"({"choices": []})", R"({"choices": [{}]})",
                            R"({"choices": [{"disaggregated_params": 1}]})"}) {
    EXPECT_FALSE(generation_params_of(reply)) << reply;
  }
}

TEST(RouterDividedBody, IdsAreRandomAndShort) {
  const uint64_t id = new_request_id();
  EXPECT_LT(id, uint64_t{1} << 53);
  EXPECT_NE(id, new_request_id());
}

}  // namespace
}  // namespace wideep::server
