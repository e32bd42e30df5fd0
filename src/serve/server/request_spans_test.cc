// SPDX-License-Identifier: Apache-2.0
#include "server/request_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace wideep::server {
namespace {

using testing::ElementsAre;

// Times in milliseconds of the steady clock.
constexpr int64_t kMs = 1'000'000;

RequestRecord record() {
  RequestRecord record{.id = "abc",
                       .client = "[::1]:4000",
                       .method = "POST",
                       .path = "/v1/chat/completions",
                       .status = 200,
                       .came_ns = 100 * kMs,
                       .replied_ns = 190 * kMs,
                       .ended_ns = 200 * kMs,
                       .is_whole = true};
  record.text = TextWork{.operation = "chat",
                         .model = "m",
                         .prompt_tokens = 7,
                         .cached_tokens = 2,
                         .written_tokens = 4,
                         .generated_tokens = 9,
                         .submitted_ns = 110 * kMs,
                         .admitted_ns = 120 * kMs,
                         .first_token_ns = 140 * kMs,
                         .last_token_ns = 180 * kMs,
                         .finish_reasons = {"stop"}};
  record.trace = traces::RequestTrace{.own = {std::string(32, 'a'), std::string(16, 'b'), true},
                                      .parent_id = std::string(16, 'c')};
  return record;
}

// "name begin-end" in ms.
std::vector<std::string> phases(const RequestRecord& record, int64_t offset_ms = 0) {
  std::vector<std::string> all;
  for (const traces::Span& span : spans_of(record, offset_ms * kMs)) {
    all.push_back(span.name + " " + std::to_string(span.begin_ns / kMs) + "-" +
                  std::to_string(span.end_ns / kMs));
  }
  return all;
}

std::map<std::string, traces::Value> attributes(const RequestRecord& record) {
  std::map<std::string, traces::Value> all;
  const auto spans = spans_of(record, 0);
  for (const auto& [key, value] : spans.front().attributes) all[key] = value;
  return all;
}

// As when ranks die in the middle of a stream, whose status was sent before.
TEST(RequestSpans, AStreamThatFailsIsAnError) {
  RequestRecord failed = record();
  EXPECT_EQ(spans_of(failed, 0)[0].error, "");
  failed.error = "ranks_died";
  EXPECT_EQ(spans_of(failed, 0)[0].error, "ranks_died");
  EXPECT_EQ(attributes(failed)["error.type"], traces::Value("ranks_died"));
  EXPECT_EQ(attributes(failed)["http.response.status_code"], traces::Value(int64_t{200}));
}

// Thousands of spans may wait, of a router also those of paths that nobody has.
TEST(RequestSpans, APathIsNoLongerThanNeeded) {
  RequestRecord long_path = record();
  long_path.path = "/" + std::string(16'000, 'x');
  EXPECT_EQ(attributes(long_path)["url.path"], traces::Value("/" + std::string(199, 'x')));
}

TEST(RequestSpans, APhaseEach) {
  EXPECT_THAT(phases(record()),
              ElementsAre("chat m 100-200", "prepare 100-110", "queue 110-120", "prefill 120-140",
                          "decode 140-180", "transfer 180-200"));
  EXPECT_EQ(phases(record(), 5000).front(), "chat m 5100-5200");
  const auto spans = spans_of(record(), 0);
  EXPECT_EQ(spans[0].kind, traces::Span::kServer);
  EXPECT_EQ(spans[0].span_id, std::string(16, 'b'));
  EXPECT_EQ(spans[0].parent_id, std::string(16, 'c'));
  for (size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].trace_id, spans[0].trace_id);
    EXPECT_EQ(spans[i].parent_id, spans[0].span_id);
    EXPECT_NE(spans[i].span_id, spans[i - 1].span_id);
    EXPECT_EQ(spans[i].kind, traces::Span::kInternal);
  }
}

TEST(RequestSpans, Attributes) {
  auto all = attributes(record());
  EXPECT_EQ(all["gen_ai.operation.name"], traces::Value("chat"));
  EXPECT_EQ(all["gen_ai.request.model"], traces::Value("m"));
  EXPECT_EQ(all["gen_ai.request.id"], traces::Value("abc"));
  EXPECT_EQ(all["gen_ai.usage.input_tokens"], traces::Value(int64_t{7}));
  EXPECT_EQ(all["gen_ai.usage.output_tokens"], traces::Value(int64_t{9}));
  EXPECT_EQ(all["gen_ai.response.finish_reasons"], traces::Value(std::vector<std::string>{"stop"}));
  EXPECT_EQ(all["http.response.status_code"], traces::Value(int64_t{200}));
  EXPECT_EQ(all["client.address"], traces::Value("::1"));
  EXPECT_EQ(all["client.port"], traces::Value(int64_t{4000}));
  EXPECT_DOUBLE_EQ(std::get<double>(all["gen_ai.latency.time_in_queue"]), 0.010);
  EXPECT_DOUBLE_EQ(std::get<double>(all["gen_ai.latency.time_in_model_prefill"]), 0.020);
  EXPECT_DOUBLE_EQ(std::get<double>(all["gen_ai.latency.time_in_model_decode"]), 0.040);
  EXPECT_DOUBLE_EQ(std::get<double>(all["gen_ai.latency.time_to_first_token"]), 0.040);
  EXPECT_DOUBLE_EQ(std::get<double>(all["gen_ai.latency.e2e"]), 0.100);
}

TEST(RequestSpans, NoPhaseThatNobodyKnows) {
  RequestRecord left = record();  // while it waited
  left.text->admitted_ns = left.text->first_token_ns = left.text->last_token_ns = 0;
  left.status = 0;
  left.is_whole = false;
  EXPECT_THAT(phases(left), ElementsAre("chat m 100-200", "prepare 100-110", "queue 110-200"));
  EXPECT_EQ(attributes(left)["wideep.cut"], traces::Value(true));
  left.text->admitted_ns = 120 * kMs;  // while its prompt was computed
  EXPECT_THAT(phases(left),
              ElementsAre("chat m 100-200", "prepare 100-110", "queue 110-120", "prefill 120-200"));
  RequestRecord untold = record();
  untold.text->admitted_ns = 0;
  EXPECT_THAT(phases(untold), ElementsAre("chat m 100-200", "prepare 100-110", "decode 140-180",
                                          "transfer 180-200"));
  EXPECT_FALSE(attributes(untold).contains("gen_ai.latency.time_in_queue"));
  RequestRecord resumed = record();
  resumed.text->is_resumed = true;
  EXPECT_THAT(phases(resumed), ElementsAre("chat m 100-200"));
  EXPECT_FALSE(attributes(resumed).contains("gen_ai.latency.time_to_first_token"));
  EXPECT_EQ(attributes(resumed)["wideep.resumed"], traces::Value(true));
}

TEST(RequestSpans, RefusedFailedAndRouted) {
  RequestRecord refused = record();
  refused.text = TextWork{.operation = "chat", .model = "m"};
  refused.status = 400;
  EXPECT_THAT(phases(refused), ElementsAre("chat m 100-200"));
  EXPECT_EQ(spans_of(refused, 0).front().error, "") << "it is the client's";
  EXPECT_FALSE(attributes(refused).contains("gen_ai.usage.input_tokens"));
  refused.status = 503;
  EXPECT_EQ(spans_of(refused, 0).front().error, "status 503");
  RequestRecord routed = record();
  routed.text.reset();
  routed.replica = "http://a:1";
  EXPECT_THAT(phases(routed), ElementsAre("POST 100-200"));
  EXPECT_EQ(attributes(routed)["wideep.replica"], traces::Value("http://a:1"));
  // The server that computed the prompt has spans below the second.
  routed.prefill = PrefillPart{.replica = "http://p:1",
                               .span_id = std::string(16, 'd'),
                               .begin_ns = 101 * kMs,
                               .end_ns = 150 * kMs};
  EXPECT_THAT(phases(routed), ElementsAre("POST 100-200", "prefill 101-150"));
  const traces::Span prefill = spans_of(routed, 0)[1];
  EXPECT_EQ(prefill.span_id, routed.prefill->span_id);
  EXPECT_EQ(prefill.parent_id, routed.trace->own.span_id);
  routed.prefill->end_ns = 0;
  EXPECT_THAT(phases(routed), ElementsAre("POST 100-200", "prefill 101-200"));
}

}  // namespace
}  // namespace wideep::server
