// SPDX-License-Identifier: Apache-2.0
//
// A socket sends the same reply byte by byte, in sevens and at once: figures must not depend on how
// a network cuts it. Members of the same names elsewhere in an event must not count. A server that
// refuses, is silent, breaks off or speaks no HTTP must be a failure of that name, or a benchmark
// would report it as a fast one.
#include "measure/serving/serving_run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "client/one_reply_testing.h"

namespace wideep::measure {
namespace {

using client::OneReply;
using testing::HasSubstr;

ServingReport ask_once(const std::string& port) {
  DatasetRequest request;
  request.prompt = std::string("x");
  request.output_tokens = 3;
  return run_serving_bench({.address = {.host = "127.0.0.1", .port = port},
                            .model = "m",
                            .requests = {request},
                            .arrivals = {}},
                           nullptr)
      .value();
}

TEST(Address, RefusedConnectionIsAnError) {
  const ServingReport refused = ask_once("1");
  EXPECT_THAT(refused.failures, testing::ElementsAre(HasSubstr("127.0.0.1:1: Connection refused")));
  EXPECT_EQ(refused.requests.at(0).e2el, 0.0);  // as benchmark_serving's of a failure
}

ServingReport ask_once(const std::string& reply, size_t step) {
  const OneReply server(reply, step);
  return ask_once(server.port());
}

std::string chunk(const std::string& text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

// Only events with non-empty text count as tokens; the numbers come from "usage". The reply may
// arrive in pieces of any size.
TEST(Serving, EventsAreParsed) {
  const std::string events =
      R"(data: {"text": "no", "choices": [{"index": 0, "text": "one", "logprobs": {"text": "no"}}]})"
      "\n\n: a comment\n\n"
      R"(data: {"choices": [{"text": ""}], "usage": null})"
      "\n\n"
      R"(data: {"choices": [{"text": "t\"wo\n"}]})"
      "\n\n";
  const std::string end =
      R"(data: {"choices": [], "usage": {"prompt_tokens": 5, "details": {"prompt_tokens": 9}, )"
      R"("completion_tokens": 7}})"
      "\n\ndata: [DONE]\n\n";
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string chunked =
      head + chunk(events.substr(0, 20)) + chunk(events.substr(20)) + chunk(end) + chunk("");
  for (const std::string& reply : {chunked, "HTTP/1.1 200 OK\r\n\r\n" + events + end}) {
    for (const size_t step : {size_t{1}, size_t{7}, reply.size()}) {
      const ServingReport report = ask_once(reply, step);
      ASSERT_EQ(report.completed, 1) << report.failures.front();
      EXPECT_EQ(report.input_tokens, 5);
      EXPECT_EQ(report.output_tokens, 7);
    }
  }
  // Without usage, texts are counted.
  const ServingReport counted = ask_once(head + chunk(events) + chunk(""), 50);
  EXPECT_EQ(counted.output_tokens, 2);
  const ServingReport cut = ask_once(chunked.substr(0, chunked.size() - 3), chunked.size());
  EXPECT_THAT(cut.failures, testing::ElementsAre(HasSubstr("breaks off")));
}

// TensorRT-LLM's definitions: a chunk with choices counts, also with an empty text; what only has
// usage does not.
TEST(Serving, TimesAreThoseOfChunksWithChoices) {
  std::string reply = "HTTP/1.1 200 OK\r\n\r\n";
  for (const char* text : {"", "one", "two", ""}) {
    reply += fmt::format("data: {{\"choices\": [{{\"text\": \"{}\"}}]}}\n\n", text);
  }
  reply += "data: {\"choices\": [], \"usage\": {\"completion_tokens\": 9}}\n\ndata: [DONE]\n\n";
  const ServedRequest served = ask_once(reply, 7).requests.at(0);
  ASSERT_TRUE(served.status.ok()) << served.status.message();
  EXPECT_EQ(served.itl.size(), 3u);
  double sum = served.ttft;
  for (const double each : served.itl) sum += each;
  EXPECT_NEAR(served.e2el, sum, 1e-9);
  EXPECT_NEAR(served.tpot(), (served.e2el - served.ttft) / 8, 1e-12);
  EXPECT_EQ(served.output_tokens, 9);
}

ServedRequest ask_with(ServingOptions options, const std::string& reply, std::string* sent) {
  OneReply server(reply, 50);
  options.address = {.host = "127.0.0.1", .port = server.port()};
  options.model = "m";
  options.requests = {{.prompt = std::string("x"), .output_tokens = 3}};
  const auto report = run_serving_bench(options, nullptr);
  *sent = server.request();
  return report.value().requests.at(0);
}

TEST(Serving, ChatsAndRepliesInOnePiece) {
  std::string sent;
  ServingOptions options{.api = ServingApi::kChat, .endpoint = "/v1/chat/completions"};
  options.keeps_texts = true;
  options.top_k = 5;
  options.logprobs = 2;
  const std::string head = "HTTP/1.1 200 OK\r\n\r\n";
  const ServedRequest chat = ask_with(
      options,
      head +
          "data: {\"choices\": [{\"delta\": {\"role\": \"assistant\", \"content\": \"\"}}]}\n\n"
          "data: {\"choices\": [{\"delta\": {\"content\": \"a b\"}}]}\n\n",
      &sent);
  EXPECT_EQ(chat.text, "a b");
  EXPECT_EQ(chat.itl.size(), 1u);
  EXPECT_EQ(chat.output_tokens, 1);
  for (const char* part :
       {"POST /v1/chat/completions ", "\"messages\":[{\"content\":\"x\",\"role\":\"user\"}]",
        "\"top_k\":5", "\"logprobs\":true", "\"top_logprobs\":2", "\"include_usage\":true"}) {
    EXPECT_THAT(sent, HasSubstr(part));
  }
  options = {.streams = false, .ignore_eos = false};
  options.keeps_texts = true;
  const std::string body =
      "{\"choices\": [{\"text\": \"a b\"}], \"usage\": {\"prompt_tokens\": 1, "
      "\"completion_tokens\": 3}}";
  const ServedRequest whole = ask_with(options, head + body, &sent);
  ASSERT_TRUE(whole.status.ok()) << whole.status.message();
  EXPECT_EQ(whole.text, "a b");
  EXPECT_EQ(whole.output_tokens, 3);
  EXPECT_EQ(whole.ttft, 0.0);
  EXPECT_GT(whole.e2el, 0.0);
  EXPECT_THAT(sent, HasSubstr("\"stream\":false"));
  EXPECT_THAT(sent, testing::Not(HasSubstr("ignore_eos")));
}

// Other servers have CRLF, no space after "data:", or an event in several lines.
TEST(Serving, EventsAreTakenInEveryForm) {
  const std::string reply =
      "HTTP/1.1 200 OK\r\n\r\n"
      ": hello\r\n\r\nevent: x\r\ndata:{\"choices\": [\r\ndata: {\"text\": \"one\"}]}\r\n\r\n"
      "data:{\"choices\": [{\"text\": \"two\"}]}\r\r";
  for (const size_t step : {size_t{1}, size_t{7}, reply.size()}) {
    const ServingReport report = ask_once(reply, step);
    ASSERT_EQ(report.completed, 1) << report.failures.front();
    EXPECT_EQ(report.output_tokens, 2);
  }
}

// Servers that tell hosts apart, or that check the name, want the port (RFC 9112, 3.2).
TEST(Serving, HostHasThePort) {
  OneReply server("HTTP/1.1 200 OK\r\n\r\ndata: {\"choices\": [{\"text\": \"one\"}]}\n\n", 100);
  EXPECT_EQ(ask_once(server.port()).completed, 1);
  EXPECT_THAT(server.request(), HasSubstr("\r\nHost: 127.0.0.1:" + server.port() + "\r\n"));
}

TEST(Serving, RepliesWithoutEventStreamAreErrors) {
  const auto failure = [](const std::string& reply) {
    return ask_once(reply, reply.size()).failures.at(0);
  };
  EXPECT_EQ(failure("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope"), "status 404: nope");
  EXPECT_EQ(failure("HTTP/1.1 500 Error\r\nContent-Length: 5000\r\n\r\n" + std::string(5000, 'x')),
            "status 500: " + std::string(300, 'x'));
  EXPECT_EQ(failure("SSH-2.0\r\n"), "the reply is not HTTP/1");
  EXPECT_EQ(failure("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n"),
            "the reply breaks off");
}

}  // namespace
}  // namespace wideep::measure
