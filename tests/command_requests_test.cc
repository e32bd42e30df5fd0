// SPDX-License-Identifier: Apache-2.0
//
// What a server says of each request: its id, which its client and its log know, and its trace, also
// when the serving process dies in the middle of the answer. The collector is a server of this test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "fault_load.h"
#include "http/http_server.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<json> access_lines(const std::string& err) {
  std::vector<json> lines;
  std::istringstream stream(err);
  for (std::string line; std::getline(stream, line);) {
    json object = json::parse(line, nullptr, false);
    EXPECT_TRUE(object.is_object()) << line;
    if (object.value("message", "") == "access") lines.push_back(std::move(object));
  }
  return lines;
}

std::string id_in(const std::string& head) {
  const std::string name = "X-Request-Id: ";
  const size_t at = head.find(name);
  EXPECT_NE(at, head.npos) << head;
  return head.substr(at + name.size(), head.find("\r\n", at) - at - name.size());
}

TEST(CommandRequests, AccessLinesOutliveTheServingProcess) {
  Server server(CommandOptions{
      .arguments = {"serve", "--model", small_model(), "--port", "0", "--served-model-name", "m",
                    "--ranks", "2", "--access-log", "--log-format", "json"},
      .environment = {{"WIDEEP_FAULT_DRILL", "recorded:12"}}});
  ASSERT_GT(server.port(), 0) << server.command().err();
  const json body = {{"model", "m"}, {"prompt", "The cat"}, {"max_tokens", 24},
                     {"seed", 5},    {"stream", true},      {"ignore_eos", true}};
  const auto reply = server::ask(server.port(), "POST", "/v1/completions", body.dump());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::string made = id_in(reply.head);
  const auto own =
      server::ask(server.port(), "POST", "/v1/completions", body.dump(), "X-Request-Id: mine\r\n");
  EXPECT_EQ(id_in(own.head), "mine");
  server.command().send(SIGTERM);
  const CommandEnd end = server.command().wait();
  EXPECT_THAT(end.err, HasSubstr("signal 9")) << "no process has died";
  const std::vector<json> lines = access_lines(end.err);
  ASSERT_EQ(lines.size(), 2u) << end.err;
  EXPECT_EQ(lines[0]["request_id"], made);
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[0]["path"], "/v1/completions");
  EXPECT_EQ(lines[0]["generated_tokens"], 24);
  EXPECT_FALSE(lines[0].contains("time_to_first_token_seconds")) << "nobody knows it any more";
  EXPECT_EQ(lines[1]["request_id"], "mine");
  EXPECT_GT(lines[1]["time_to_first_token_seconds"], 0.0);
  EXPECT_GE(lines[1]["seconds"], lines[1]["time_to_first_token_seconds"]);
}

// A client that shows a bar sees it stand, not jump back, while the ranks compute the prompt again.
TEST(CommandRequests, ProgressGoesOnInAnotherServingProcess) {
  ModelCopy model;
  model.edit_config([](json& config) { config["max_position_embeddings"] = 1 << 16; });
  Server server(model.path(), {"--ranks", "2", "--max-num-tokens", "16", "--max-batch-size", "16"});
  ASSERT_GT(server.port(), 0) << server.command().err();
  std::vector<int> prompt(2000);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int>(i % 97) + 3;
  const std::string body = json({{"model", "m"},
                                 {"prompt", prompt},
                                 {"max_tokens", 2},
                                 {"stream", true},
                                 {"return_progress", true}})
                               .dump();
  server::Socket client(server.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  std::string all;
  const std::string first = "\"processed\":480";  // far enough to go back
  while (all.find(first) == all.npos) {
    const std::string more = client.receive();
    ASSERT_FALSE(more.empty()) << all;
    all += more;
  }
  ::kill(front_processes(server.command()).at(0), SIGKILL);
  all += client.receive_all();
  const std::string key = "\"prompt_progress\":";
  json last = {{"processed", -1}, {"time_ms", 0}};
  size_t count = 0;
  for (size_t at = all.find(key); at != all.npos; at = all.find(key, at + 1), ++count) {
    const size_t begin = at + key.size();
    const json progress = json::parse(all.substr(begin, all.find('}', begin) + 1 - begin));
    EXPECT_GT(progress["processed"], last["processed"]);
    EXPECT_GE(progress["time_ms"], last["time_ms"]);
    last = progress;
  }
  EXPECT_GT(count, 90u);
  EXPECT_EQ(last["processed"], 2000);
  EXPECT_THAT(all, HasSubstr("data: [DONE]"));
  EXPECT_THAT(server.command().err(), HasSubstr("another one goes on with its requests"));
}

// ---- traces ----

// answers: false: it takes requests and says nothing.
class SmallCollector {
 public:
  explicit SmallCollector(bool answers = true) {
    server_ = server::HttpServer::listen({.port = 0}, [this, answers](
                                                          std::shared_ptr<server::Exchange> each) {
                take(each->path(), each->body());
                if (!answers) return waiting_.push_back(std::move(each));
                each->reply(200, "application/json", "{}");
              }).value();
    thread_ = std::thread([this] { server_->run(); });
  }
  ~SmallCollector() {
    server_->stop();
    thread_.join();
    waiting_.clear();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_->port()); }
  size_t num_requests() {
    const std::lock_guard lock(mutex_);
    return num_requests_;
  }
  std::vector<json> spans() {
    const std::lock_guard lock(mutex_);
    return spans_;
  }

 private:
  void take(const std::string& path, const std::string& body) {
    EXPECT_EQ(path, "/v1/traces");
    const json sent = json::parse(body, nullptr, false);
    ASSERT_TRUE(sent.is_object()) << body;
    const std::lock_guard lock(mutex_);
    ++num_requests_;
    for (const json& resource : sent["resourceSpans"]) {
      const std::string name = resource["resource"]["attributes"][0]["value"]["stringValue"];
      for (json span : resource["scopeSpans"][0]["spans"]) {
        span["service"] = name;
        spans_.push_back(std::move(span));
      }
    }
  }
  std::unique_ptr<server::HttpServer> server_;
  std::vector<std::shared_ptr<server::Exchange>> waiting_;
  std::thread thread_;
  std::mutex mutex_;
  size_t num_requests_ = 0;
  std::vector<json> spans_;
};

CommandOptions traced_server(const SmallCollector& collector) {
  return {.arguments = {"serve", "--model", small_model(), "--port", "0", "--served-model-name",
                        "m", "--ranks", "2"},
          .environment = {{"OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()},
                          {"OTEL_SERVICE_NAME", "engine"}}};
}

const json kBody = {{"model", "m"}, {"prompt", "The cat"}, {"max_tokens", 24},
                    {"seed", 5},    {"stream", true},      {"ignore_eos", true}};
constexpr const char* kTraceId = "4bf92f3577b34da6a3ce929d0e0e4736";

void expect_clean_end(Server& server) {
  server.command().send(SIGTERM);
  const CommandEnd end = server.command().wait();
  EXPECT_EQ(end.exit_code, 0) << end.err;
}

int64_t ns(const json& span, const char* key) { return std::stoll(span[key].get<std::string>()); }

TEST(CommandRequests, SpansOfAllPhasesThroughTheRouter) {
  SmallCollector collector;
  Server server(traced_server(collector));
  ASSERT_GT(server.port(), 0) << server.command().err();
  Server router(
      CommandOptions{.arguments = {"route", "--replica",
                                   "127.0.0.1:" + std::to_string(server.port()), "--port", "0"},
                     .environment = {{"OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()},
                                     {"OTEL_SERVICE_NAME", "router"}}});
  ASSERT_GT(router.port(), 0) << router.command().err();
  const auto begin = std::chrono::system_clock::now().time_since_epoch();
  const auto reply = server::ask(
      router.port(), "POST", "/v1/completions", kBody.dump(),
      "traceparent: 00-" + std::string(kTraceId) + "-00f067aa0ba902b7-01\r\ntracestate: v=1\r\n");
  EXPECT_EQ(reply.status, 200);
  server::ask(router.port(), "POST", "/v1/completions", kBody.dump(),
              "traceparent: 00-" + std::string(kTraceId) + "-00f067aa0ba902b7-00\r\n");
  expect_clean_end(router);
  expect_clean_end(server);
  const auto end = std::chrono::system_clock::now().time_since_epoch();
  std::map<std::string, json> by_name;
  for (const json& span : collector.spans()) {
    EXPECT_EQ(span["traceId"], kTraceId) << "the second was not to be sampled";
    EXPECT_EQ(span["traceState"], "v=1");
    EXPECT_TRUE(by_name.emplace(span["name"], span).second) << span;
    EXPECT_LE(ns(span, "startTimeUnixNano"), ns(span, "endTimeUnixNano")) << span;
    EXPECT_GE(ns(span, "startTimeUnixNano"), std::chrono::nanoseconds(begin).count());
    EXPECT_LE(ns(span, "endTimeUnixNano"), std::chrono::nanoseconds(end).count());
  }
  ASSERT_EQ(by_name.size(), 7u);
  EXPECT_EQ(by_name["POST"]["service"], "router");
  EXPECT_EQ(by_name["POST"]["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_THAT(reply.head, HasSubstr("traceparent: 00-" + std::string(kTraceId) + "-" +
                                    by_name["POST"]["spanId"].get<std::string>() + "-01"));
  const json& own = by_name["text_completion m"];
  EXPECT_EQ(own["service"], "engine");
  EXPECT_EQ(own["parentSpanId"], by_name["POST"]["spanId"]);
  int64_t last = ns(own, "startTimeUnixNano");
  for (const char* phase : {"prepare", "queue", "prefill", "decode", "transfer"}) {
    ASSERT_TRUE(by_name.contains(phase)) << phase;
    EXPECT_EQ(by_name[phase]["parentSpanId"], own["spanId"]);
    EXPECT_EQ(ns(by_name[phase], "startTimeUnixNano"), last) << phase << " follows the one before";
    last = ns(by_name[phase], "endTimeUnixNano");
  }
  EXPECT_EQ(last, ns(own, "endTimeUnixNano"));
}

// The answer of the process that goes on is part of the same span.
TEST(CommandRequests, ATraceOutlivesTheServingProcess) {
  SmallCollector collector;
  CommandOptions options = traced_server(collector);
  options.environment.emplace_back("WIDEEP_FAULT_DRILL", "recorded:12");
  Server server(options);
  ASSERT_GT(server.port(), 0) << server.command().err();
  const auto reply = server::ask(server.port(), "POST", "/v1/completions", kBody.dump());
  expect_clean_end(server);
  EXPECT_THAT(server.command().err(), HasSubstr("signal 9")) << "no process has died";
  const std::vector<json> spans = collector.spans();
  ASSERT_EQ(spans.size(), 1u) << "phases before its death are not known";
  EXPECT_THAT(reply.head, HasSubstr("traceparent: 00-" + spans[0]["traceId"].get<std::string>() +
                                    "-" + spans[0]["spanId"].get<std::string>() + "-01"));
}

// It is given up when the server ends, within seconds, and its spans are counted.
TEST(CommandRequests, AStuckCollectorDelaysNoToken) {
  using Clock = std::chrono::steady_clock;
  const auto time_of = [](Server& server) {
    const auto begin = Clock::now();
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(server::ask(server.port(), "POST", "/v1/completions", kBody.dump()).status, 200);
    }
    return Clock::now() - begin;
  };
  Server plain(small_model(), {"--ranks", "2"});
  ASSERT_GT(plain.port(), 0);
  time_of(plain);  // the first requests are slower
  const auto without = time_of(plain);
  expect_clean_end(plain);
  SmallCollector collector(/*answers=*/false);
  Server server(traced_server(collector));
  ASSERT_GT(server.port(), 0) << server.command().err();
  time_of(server);
  EXPECT_TRUE(wait_until([&] { return collector.num_requests() > 0; }, std::chrono::seconds(20)));
  const auto with = time_of(server);  // while it waits for the collector, which may take 10 s
  EXPECT_LT(with, 5 * without + std::chrono::seconds(1));
  EXPECT_EQ(server.metric("wideep_trace_spans_dropped_total"), 0);
  const auto end = Clock::now();
  expect_clean_end(server);
  EXPECT_LT(Clock::now() - end, std::chrono::seconds(8) * kSlowdown);
  EXPECT_THAT(server.command().err(), HasSubstr("traces: 240 spans were not sent before the end"));
}

TEST(CommandRequests, WrongVariablesAreNamed) {
  for (const char* command : {"serve", "route"}) {
    std::vector<std::string> arguments = {command, "--port", "0"};
    const std::vector<std::string> more =
        std::string(command) == "serve" ? std::vector<std::string>{"--model", small_model()}
                                        : std::vector<std::string>{"--replica", "127.0.0.1:1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(
        run_command({.arguments = arguments,
                     .environment = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4318"}}}),
        {"OTEL_EXPORTER_OTLP_ENDPOINT", "https is not there"});
    expect_refused(
        run_command({.arguments = arguments,
                     .environment = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"},
                                     {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}}}),
        {"OTEL_EXPORTER_OTLP_PROTOCOL", "expected http/json", "grpc"});
  }
}

}  // namespace
}  // namespace wideep::tests
