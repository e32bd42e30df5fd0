// SPDX-License-Identifier: Apache-2.0
//
// The endpoints over real sockets, with a backend that generates a fixed text.
#include "server/service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <filesystem>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include "api/error_form.h"
#include "base/cpu_time.h"
#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "formats/base64.h"
#include "formats/files.h"
#include "formats/npy.h"
#include "grammar/constraint_testing.h"
#include "http/http_client_testing.h"
#include "recordings/statistics_reader.h"
#include "server/answer_records.h"
#include "server/role_memory.h"
#include "server/stream_journal.h"
#include "store/page_peer.h"
#include "store/page_trust.h"

namespace wideep::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

// Answers every request with the same text, one token per pass of the event loop.
class EchoBackend : public Backend {
 public:
  EchoBackend(const tokenizer::Tokenizer& tokenizer, std::string text)
      : tokens_(tokenizer.encode(text, false)) {}

  void serve_on(HttpServer* server) { server_ = server; }

  int64_t submit(engine::Request request, OnToken on_token, OnExperts on_experts,
                 OnProgress on_progress) override {
    const int64_t id = next_id_++;
    if (request.reports_progress) report_progress(request, on_progress);
    last_request = request;
    rules.push_back(request.rules);
    prompts.push_back(request.prompt);
    const auto generated = static_cast<int>(request.answered.size());
    running_[id] = {std::move(request), std::move(on_token), std::move(on_experts), generated};
    server_->post([this, id] { generate_next(id); });
    return id;
  }
  void cancel(int64_t id) override {
    running_.erase(id);
    ++cancelled;
  }
  void cut(int64_t id) override {
    ++num_cut;
    server_->post([running = running_.extract(id).mapped(), this] { send_experts(running); });
  }
  std::optional<double> computes_since() const override { return computing_since; }

  std::atomic<int> cancelled{0};
  std::atomic<bool> endless{false};
  std::atomic<int> max_tokens{INT_MAX};  // of an answer, which then waits for its end
  std::atomic<int> cached_tokens{0};
  std::atomic<int> per_step{1};  // tokens of an iteration, as with right drafts
  std::atomic<int> num_cut{0};
  std::optional<double> computing_since;  // of the serving thread
  std::atomic<bool> holds_experts{false};
  std::atomic<int> lacking{0};  // positions, in the next experts
  engine::Request last_request;
  std::vector<engine::SharedRules> rules;     // of all requests
  std::vector<engine::SharedTokens> prompts;  // of all requests

 private:
  // As of a rank that begins it, does a half, dies, and of another one.
  void report_progress(const engine::Request& request, const OnProgress& on_progress) {
    const int total = static_cast<int>(request.prompt.size());
    const int steps[] = {0, total / 2, 0, total / 2, total};
    for (const int step : steps) {
      server_->post([=, this] {
        on_progress({.processed = std::max<int>(step, cached_tokens),
                     .total = total,
                     .cached = cached_tokens,
                     .is_first = step == 0});
      });
    }
  }

  struct Running {
    engine::Request request;
    OnToken on_token;
    OnExperts on_experts;
    int generated = 0;
  };

  // The experts of position p in layer l: 10 p + 2 l and the one after it.
  void send_experts(const Running& each) {
    if (!each.request.returns_experts || holds_experts) return;
    run::RoutedExperts routed{.num_layers = 3, .top_k = 2, .experts = {}};
    routed.num_positions =
        static_cast<int>(each.request.prompt.size()) + each.generated - 1 - lacking.exchange(0);
    for (int position = 0; position < routed.num_positions; ++position) {
      for (int i = 0; i < 6; ++i) routed.experts.push_back(10 * position + i);
    }
    each.on_experts(routed);
  }

  void generate_next(int64_t id) {
    const auto found = running_.find(id);
    if (found == running_.end()) return;
    Running& each = found->second;
    if (each.generated >= max_tokens) return;
    const std::vector<int32_t>& forced = each.request.rules->forced;
    const size_t all = forced.size() + tokens_.size();
    if (!endless && static_cast<size_t>(each.generated) == all) return stop(id);
    const auto place = static_cast<size_t>(each.generated++);
    const int32_t token =
        place < forced.size() ? forced[place] : tokens_[(place - forced.size()) % tokens_.size()];
    const bool all_generated = !endless && place + 1 == all;
    const auto reason = each.generated == each.request.max_tokens
                            ? engine::FinishReason::kLength
                            : engine::FinishReason::kNotFinished;
    const Running copy = each;
    const OnToken& on_token = copy.on_token;
    const engine::SamplingParams sampling = each.request.sampling;
    const bool ends = reason != engine::FinishReason::kNotFinished;
    if (ends) running_.erase(found);
    const int place_of_step = std::max(0, static_cast<int>(place - forced.size())) % per_step;
    run::Token token_event{.sampled = {token, -0.5f},
                           .finish_reason = reason,
                           .cached_tokens = cached_tokens,
                           .step_drafts = place_of_step == 0 ? per_step - 1 : -1,
                           .digest = {},
                           .likely = {}};
    for (int i = 0; i < sampling.top_log_probabilities; ++i) {
      token_event.likely.push_back(
          {tokens_[static_cast<size_t>(i) % tokens_.size()], -0.25f * (i + 1)});
    }
    on_token(token_event);
    if (ends) return send_experts(copy);
    if (!running_.contains(id)) return;
    if (all_generated) return stop(id);
    server_->post([this, id] { generate_next(id); });
  }

  void stop(int64_t id) {
    Running last = std::move(running_.extract(id).mapped());
    ++last.generated;
    last.on_token({.sampled = {1, -0.25f},
                   .finish_reason = engine::FinishReason::kStop,
                   .digest = {},
                   .likely = {}});
    send_experts(last);
  }

  std::vector<int32_t> tokens_;
  HttpServer* server_ = nullptr;
  std::map<int64_t, Running> running_;
  int64_t next_id_ = 0;
};

// Of all threads of this process.
int64_t process_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// The most that this process has had.
int64_t max_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

// What this process has now.
size_t allocated_bytes() {
  const auto all = ::mallinfo2();
  return all.uordblks + all.hblkhd;
}

class ServiceTest : public testing::Test {
 protected:
  static constexpr const char* kText = "One two three, and more.";

  ServiceTest()
      : ServiceTest(tokenizer::Tokenizer::read(WIDEEP_SOURCE_DIR "/models/reference").value(),
                    kText) {}
  ServiceTest(tokenizer::Tokenizer tokenizer, std::string text)
      : tokenizer_(std::move(tokenizer)), backend_(tokenizer_, std::move(text)) {
    ServiceOptions options{.model = "m", .max_sequence = 64, .max_queue = 8};
    start(options);
  }
  ~ServiceTest() override { finish(); }

  void start(const ServiceOptions& options, size_t max_body_bytes = 4096,
             std::vector<std::string> cors_origins = {}) {
    start(options, {.max_body_bytes = max_body_bytes, .cors_origins = std::move(cors_origins)});
  }
  void start(const ServiceOptions& options, HttpOptions http) {
    ChatFiles chat{.templates = {}, .special_tokens = {{"bos_token", "<s>"}, {"pad_token", "<p>"}}};
    const std::pair<const char*, const char*> templates[] = {
        {"default",
         "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
         "{% if messages[0].content == 'odd' %}{{ raise_exception('odd text') }}{% endif %}"},
        {"tool_use", "{{ tools | tojson }}{{ pad_token }}"},
        {"calls",
         "{%- for m in messages -%}{%- for c in m.tool_calls or [] -%}<{{ c.function.name }}>"
         "{%- for k, v in c.function.arguments | items -%}<{{ k }}>{{ v }}</{{ k }}>{%- endfor -%}"
         "{%- endfor -%}{{ m.content }}{%- endfor -%}"},
        {"broken", "{{ nothing"},
        {"qwen",
         "{# <tool_call> #}{{ tools | tojson }}{% for m in messages %}{{ m.role }}:"
         "{{ m.reasoning_content }}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>"
         "{{ c.function.arguments | tojson }}{% endfor %};{% endfor %}"
         "{{ reasoning_effort }}{% if enable_thinking is defined and not enable_thinking %}"
         "<think></think>{% endif %}"},
        {"effort",
         "{% if reasoning_effort not in ['no_think', 'low', 'high'] %}"
         "{{ raise_exception('effort') }}{% endif %}{{ reasoning_effort }};{{ thinking }};"
         "{{ thinking_mode }};{{ messages[0].reasoning }}"},
        {"mistral", "[TOOL_CALLS]"},
        {"kimi", "<|tool_call_begin|><|tool_calls_section_begin|>"},
        {"strict",
         "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
         "{{ raise_exception('system') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}"},
        {"opens", "{{ messages[0].content }}<think>\n"},
        {"plans", "{% for m in messages %}{{ m.tool_plan }}{{ m.content }}{% endfor %}"},
    };
    for (const auto& [name, text] : templates)
      EXPECT_TRUE(chat.templates.add(name, text, name).ok());
    EXPECT_TRUE(chat.templates.find_styles(tokenizer_, {}).ok());
    service_.emplace(options, tokenizer_, std::move(chat), backend_);
    http.port = 0;
    http.error_form = error_form;
    server_ =
        HttpServer::listen(http, [this](auto exchange) { service_->handle(exchange); }).value();
    server_->check_heads([this](const RequestHead& head) { return service_->check_head(head); });
    backend_.serve_on(server_.get());
    service_->connect([this](std::function<void()> call) { server_->post(std::move(call)); });
    thread_ = std::thread([this] { server_->run(); });
  }
  void finish() {
    server_->stop();
    thread_.join();
    service_->join();
    server_.reset();
  }

  Reply ask(const std::string& method, const std::string& path, const std::string& body = "",
            const std::string& headers = "") {
    return server::ask(server_->port(), method, path, body, headers);
  }
  Reply complete(const json& body) { return ask("POST", "/v1/completions", body.dump()); }
  Reply chat(const json& body) { return ask("POST", "/v1/chat/completions", body.dump()); }

  // The request whose stream was cut; the journal has what came of it.
  Reply resume(const std::string& path, const std::string& body, const StreamJournal& journal) {
    std::string headers = "X-Wideep-Journal: 1\r\n";
    if (journal.has_records()) {
      headers += "X-Wideep-Resume: " + std::to_string(body.size()) + "\r\n";
    }
    return ask("POST", path, journal.resumed(body), headers);
  }
  // A stream that is lost, twice, goes on with the same bytes, wherever it was cut. change: takes out
  // of both what may differ.
  void expect_resumes(
      const std::string& path, json body,
      const std::function<void(std::string&)>& change = [](std::string&) {}) {
    SCOPED_TRACE(body.dump());
    body["stream"] = true;
    const std::string request = body.dump();
    const Reply whole = ask("POST", path, request, "X-Wideep-Journal: 1\r\n");
    ASSERT_EQ(whole.status, 200) << whole.body;
    StreamJournalMemory memory;
    std::string expected = StreamJournal(memory).take(whole.body);
    EXPECT_THAT(expected, Not(HasSubstr("wideep")));
    change(expected);
    const size_t head_end = whole.body.find("\n\n") + 2;
    const size_t step = 1 + whole.body.size() / 40;
    for (size_t cut = head_end; cut <= whole.body.size(); cut += step) {
      StreamJournal journal(memory);
      std::string got = journal.take(std::string_view(whole.body).substr(0, cut));
      ASSERT_TRUE(journal.can_resume(request.size()));
      const Reply second = resume(path, request, journal);
      ASSERT_EQ(second.status, 200) << second.body;
      journal.begin_again();
      got += journal.take(std::string_view(second.body).substr(0, second.body.size() * 2 / 3));
      const Reply third = resume(path, request, journal);
      ASSERT_EQ(third.status, 200) << third.body;
      journal.begin_again();
      got += journal.take(third.body);
      EXPECT_FALSE(journal.differs() || journal.is_behind());
      change(got);
      ASSERT_EQ(got, expected) << "cut at " << cut;
    }
    EXPECT_EQ(memory.bytes, 0u);
  }

  // What the serving thread owns, seen from there.
  template <typename Call>
  auto on_server(Call call) {
    std::promise<decltype(call())> promise;
    auto result = promise.get_future();
    server_->post([&] { promise.set_value(call()); });
    return result.get();
  }

  tokenizer::Tokenizer tokenizer_;
  EchoBackend backend_;
  std::optional<Service> service_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

TEST_F(ServiceTest, CompletionsAreAsOpenAiHasThem) {
  const Reply reply = complete({{"model", "m"}, {"prompt", "Count."}, {"max_tokens", 40}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json body = reply.body_json();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_THAT(body["id"].get<std::string>(), StartsWith("cmpl-"));
  EXPECT_EQ(body["model"], "m");
  EXPECT_EQ(body["choices"][0]["text"], kText);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  const auto tokens = static_cast<int>(tokenizer_.encode(kText, false).size());
  EXPECT_EQ(body["usage"]["completion_tokens"], tokens + 1);  // the end token too
  EXPECT_EQ(body["usage"]["prompt_tokens"], tokenizer_.encode("Count.").size());
  EXPECT_EQ(backend_.last_request.prompt.ids(), tokenizer_.encode("Count."));
}

TEST_F(ServiceTest, LengthEndsAnAnswer) {
  const json body = complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 2}}).body_json();
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  const json by_default = complete({{"model", "m"}, {"prompt", "x"}}).body_json();
  EXPECT_LE(by_default["usage"]["completion_tokens"], 16);
}

// Clients ask for as many tokens as their usual models can write.
TEST_F(ServiceTest, TheContextEndsAnAnswerThatMayBeLonger) {
  backend_.endless = true;
  const std::vector<int> prompt(50, 5);
  for (const int wanted : {15, 4096, -1}) {
    const json body =
        complete({{"model", "m"}, {"prompt", prompt}, {"max_tokens", wanted}}).body_json();
    EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(body["usage"]["completion_tokens"], 14);
    EXPECT_EQ(body["usage"].contains("clipped_max_tokens"), wanted > 0);
    if (wanted > 0) {
      EXPECT_EQ(body["usage"]["clipped_max_tokens"], 14);
    }
  }
  const json fits = complete({{"model", "m"}, {"prompt", prompt}, {"max_tokens", 14}}).body_json();
  EXPECT_FALSE(fits["usage"].contains("clipped_max_tokens"));
  // Each prompt has a room of its own.
  const json both = complete({{"model", "m"},
                              {"prompt", {std::vector<int>(60, 5), std::vector<int>(4, 5)}},
                              {"max_tokens", 20}})
                        .body_json();
  EXPECT_EQ(both["usage"]["completion_tokens"], 4 + 20);
  EXPECT_EQ(both["usage"]["clipped_max_tokens"], 4);
  const json answer = chat({{"model", "m"},
                            {"messages", {{{"role", "user"}, {"content", "x"}}}},
                            {"max_completion_tokens", 100}})
                          .body_json();
  EXPECT_EQ(answer["usage"]["total_tokens"], 64);
  const json response =
      ask("POST", "/v1/responses", R"({"model": "m", "input": "x", "max_output_tokens": 100})")
          .body_json();
  EXPECT_EQ(response["usage"]["total_tokens"], 64);
  EXPECT_EQ(response["usage"]["clipped_max_tokens"], response["usage"]["output_tokens"]);
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
}

TEST_F(ServiceTest, WhatRequestsDoNotSayIsAsTheModelHasIt) {
  finish();
  run::SamplingDefaults sampling{.temperature = 0.6f,
                                 .top_p = 0.95f,
                                 .min_p = 0.1f,
                                 .repetition_penalty = 1.05f,
                                 .top_k = 1,
                                 .max_tokens = 3,
                                 .source = "generation_config.json"};
  start({.model = "m", .sampling = sampling, .max_sequence = 64});
  const json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const std::pair<const char*, json> kRequests[] = {
      {"/v1/completions", {{"model", "m"}, {"prompt", "x"}}},
      {"/v1/chat/completions", {{"model", "m"}, {"messages", messages}}},
      {"/v1/responses", {{"model", "m"}, {"input", "x"}}},
      {"/v1/messages", {{"model", "m"}, {"messages", messages}, {"max_tokens", 9}}}};
  for (auto [path, body] : kRequests) {
    const Reply reply = ask("POST", path, body.dump());
    ASSERT_EQ(reply.status, 200) << reply.body;
    const engine::SamplingParams unsaid = backend_.last_request.sampling;
    EXPECT_EQ(unsaid.temperature, 0.6f) << path;
    EXPECT_EQ(unsaid.top_p, 0.95f) << path;
    EXPECT_EQ(unsaid.min_p, 0.1f) << path;
    EXPECT_EQ(unsaid.repetition_penalty, 1.05f) << path;
    EXPECT_EQ(unsaid.top_k, 1) << path;
    EXPECT_EQ(backend_.last_request.max_tokens, 3) << path;  // the most of any request
    body["temperature"] = 0.25;
    body["top_k"] = 7;
    ASSERT_EQ(ask("POST", path, body.dump()).status, 200);
    EXPECT_EQ(backend_.last_request.sampling.temperature, 0.25f) << path;
    EXPECT_EQ(backend_.last_request.sampling.top_k, 7) << path;
    EXPECT_EQ(backend_.last_request.sampling.top_p, 0.95f) << path;
  }
  const json response = ask("POST", "/v1/responses", R"({"model": "m", "input": "x"})").body_json();
  EXPECT_EQ(response["temperature"], 0.6);
  EXPECT_EQ(response["top_p"], 0.95);
  const json limited = complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 9}}).body_json();
  EXPECT_EQ(limited["usage"]["clipped_max_tokens"], 3);
}

TEST_F(ServiceTest, StreamsContainTheSameTextInPieces) {
  const Reply reply = chat({{"model", "m"},
                            {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                            {"stream", true},
                            {"stream_options", {{"include_usage", true}}}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(reply.head, HasSubstr("text/event-stream"));
  const std::vector<json> events = reply.events();
  ASSERT_GT(events.size(), 4u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  std::string text;
  for (const json& event : events) {
    if (!event["choices"].empty()) text += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, kText);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_GT(events.back()["usage"]["completion_tokens"], 4);
}

// Each prompt's own, which only goes up; the rest of the stream is as without it.
TEST_F(ServiceTest, StreamsMayTellTheProgressOfThePrompt) {
  backend_.cached_tokens = 2;
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    SCOPED_TRACE(path);
    const bool is_chat = std::string(path) == "/v1/chat/completions";
    json body = {{"model", "m"}, {"stream", true}, {"max_tokens", 4}, {"seed", 1}, {"n", 2}};
    if (is_chat) {
      body["messages"] = {{{"role", "user"}, {"content", "Hi there"}}};
    } else {
      body["prompt"] = "Count to three and more.";
    }
    const std::vector<json> plain = ask("POST", path, body.dump()).events();
    EXPECT_FALSE(backend_.last_request.reports_progress);
    body["return_progress"] = true;
    std::vector<json> events = ask("POST", path, body.dump()).events();
    EXPECT_TRUE(backend_.last_request.reports_progress);
    const int total = static_cast<int>(backend_.last_request.prompt.size());
    std::vector<std::vector<int>> processed(2);
    std::vector<json> rest;
    for (json& event : events) {
      event.erase("id"), event.erase("created");
      if (!event.contains("prompt_progress")) {
        rest.push_back(event);
        continue;
      }
      const json& choice = event["choices"].at(0);
      EXPECT_EQ(choice["finish_reason"], nullptr);
      EXPECT_TRUE(is_chat ? choice["delta"].empty() : choice["text"] == "");
      const json& progress = event["prompt_progress"];
      EXPECT_EQ(progress["total"], total);
      EXPECT_EQ(progress["cache"], 2);
      EXPECT_GE(progress["time_ms"], 0);
      processed[choice["index"].get<size_t>()].push_back(progress["processed"]);
    }
    for (const auto& each : processed) {
      EXPECT_EQ(each, (std::vector<int>{2, total / 2, total}));
    }
    ASSERT_EQ(rest.size(), plain.size());
    for (size_t i = 0; i < rest.size(); ++i) {
      json expected = plain[i];
      expected.erase("id"), expected.erase("created");
      EXPECT_EQ(rest[i], expected);
    }
  }
}

TEST_F(ServiceTest, OnlyStreamsOfTextHaveProgress) {
  const json whole = {{"model", "m"}, {"prompt", "x"}, {"return_progress", true}};
  const Reply refused = complete(whole);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("return_progress: expected stream: true beside it"));
  const Reply response =
      ask("POST", "/v1/responses",
          json{{"model", "m"}, {"input", "x"}, {"stream", true}, {"return_progress", true}}.dump());
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("return_progress"));
  const Reply message = ask("POST", "/v1/messages",
                            json{{"model", "m"},
                                 {"max_tokens", 3},
                                 {"messages", {{{"role", "user"}, {"content", "x"}}}},
                                 {"stream", true},
                                 {"return_progress", true}}
                                .dump());
  EXPECT_EQ(message.status, 400);
  EXPECT_THAT(message.body, HasSubstr("return_progress"));
}

// The rule: a part at an answer's first token, at those whose number divides by the interval, and at
// its end. Each entry is the tokens of a part.
std::vector<size_t> parts_by_rule(size_t num_tokens, size_t interval) {
  std::vector<size_t> parts;
  size_t waiting = 0;
  for (size_t i = 1; i <= num_tokens + 1; ++i) {  // with the end token
    ++waiting;
    if (i == 1 || i % interval == 0 || i == num_tokens + 1) {
      parts.push_back(std::exchange(waiting, 0));
    }
  }
  return parts;
}

// Also where drafts make a step yield several tokens: bytes must not depend on how many were right.
TEST_F(ServiceTest, StreamsHaveTheFirstTokenAtOnceAndAPartPerInterval) {
  const size_t num_tokens = tokenizer_.encode(kText, false).size();
  ASSERT_GT(num_tokens, 6u);
  for (const int per_step : {1, 3}) {
    for (const int interval : {1, 2, 3, 5, 100}) {
      SCOPED_TRACE(testing::Message() << per_step << " tokens a step, interval " << interval);
      finish();
      start({.model = "m", .max_sequence = 64, .max_queue = 8, .stream_interval = interval});
      backend_.per_step = per_step;
      const std::vector<json> events = chat({{"model", "m"},
                                             {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                             {"n", 2},
                                             {"stream", true},
                                             {"return_token_ids", true}})
                                           .events();
      std::vector<std::vector<size_t>> parts(2);
      std::string texts[2];
      for (const json& event : events) {
        for (const json& choice : event["choices"]) {
          const size_t index = choice["index"];
          texts[index] += choice["delta"].value("content", "");
          if (choice.contains("token_ids")) parts[index].push_back(choice["token_ids"].size());
        }
      }
      for (const size_t index : {0, 1}) {
        EXPECT_EQ(parts[index], parts_by_rule(num_tokens, static_cast<size_t>(interval)));
        EXPECT_EQ(texts[index], kText);
      }
    }
  }
}

TEST_F(ServiceTest, ChatsPassThroughTheTemplate) {
  const Reply reply =
      chat({{"model", "m"},
            {"messages",
             {{{"role", "system"}, {"content", "S"}},
              {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "U"}}}}}}}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.body_json()["choices"][0]["message"]["content"], kText);
  EXPECT_EQ(reply.body_json()["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(backend_.last_request.prompt.ids(), tokenizer_.encode("<s>[system] S[user] U", false));
  const Reply odd = chat({{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "odd"}}}}});
  EXPECT_EQ(odd.status, 400);
  EXPECT_THAT(odd.body, HasSubstr("odd text"));
}

TEST_F(ServiceTest, CallsComeAsTextAndTemplatesGoThroughThem) {
  const Reply reply = ask("POST", "/v1/chat/completions", R"({"model": "m", "max_tokens": 1,
      "chat_template": "calls", "messages": [{"role": "user", "content": "args"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "f", "arguments": "{\"a\": 3}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "5"}]})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(backend_.last_request.prompt.ids(), tokenizer_.encode("args<f><a>3</a>5", false));
}

TEST_F(ServiceTest, MembersOfMessagesAreTheTemplates) {
  const auto with = [&](const char* name, const json& value) {
    return chat({{"model", "m"},
                 {"max_tokens", 1},
                 {"chat_template", "plans"},
                 {"messages", {{{"role", "user"}, {"content", "x"}, {name, value}}}}});
  };
  const Reply reply = with("tool_plan", "first");
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(backend_.last_request.prompt.ids(), tokenizer_.encode("firstx", false));
  EXPECT_EQ(with("tool_plam", nullptr).status, 200);
  const Reply refused = with("tool_plam", "first");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.body_json()["error"]["param"], "messages[0].tool_plam");
  EXPECT_THAT(refused.body, HasSubstr("messages[0].tool_plam: this field is not known, nor does "
                                      "the model's chat template read it"));
  const json tokens = {{"messages", {{{"role", "user"}, {"content", "x"}, {"plan", 1}}}}};
  EXPECT_EQ(ask("POST", "/tokenize", tokens.dump()).body_json()["error"]["param"],
            "messages[0].plan");
}

TEST_F(ServiceTest, ToolsHaveTheirOwnTemplateAndKeepAllDigits) {
  finish();
  start({.model = "m", .max_sequence = 256});
  const auto with = [&](const std::string& fields) {
    return ask("POST", "/v1/chat/completions",
               R"({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}])" +
                   fields + "}");
  };
  const std::string tool = R"({"type": "function", "function": {"name": "f", "parameters": )"
                           R"({"most": 18446744073709551615, "least": -9223372036854775809}}})";
  const std::string tools = ", \"tools\": [" + tool + "]";
  EXPECT_EQ(with(tools).status, 200);
  EXPECT_EQ(backend_.last_request.prompt.ids(), tokenizer_.encode("[" + tool + "]<p>", false));
  EXPECT_EQ(with(tools + R"(, "chat_template": "default")").status, 200);
  EXPECT_EQ(backend_.last_request.prompt.ids(), tokenizer_.encode("<s>[user] x", false));
  EXPECT_EQ(with("").status, 200);
  EXPECT_EQ(backend_.last_request.prompt.ids(), tokenizer_.encode("<s>[user] x", false));
  EXPECT_THAT(
      with(R"(, "chat_template": "rag")").body,
      HasSubstr("no chat template 'rag', only: broken, calls, default, effort, kimi, mistral, "
                "opens, plans, qwen, strict, tool_use"));
  EXPECT_THAT(with(R"(, "chat_template": "broken")").body, HasSubstr("the tag has no end"));
}

TEST_F(ServiceTest, StopStringsEndAnswersWhereverTheyFall) {
  const json body =
      complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 40}, {"stop", {"ee, a", "zzz"}}})
          .body_json();
  EXPECT_EQ(body["choices"][0]["text"], "One two thr");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(backend_.cancelled, 1);
  // Text that only begins like a stop string is sent in the end.
  const json other =
      complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 40}, {"stop", "more.!"}})
          .body_json();
  EXPECT_EQ(other["choices"][0]["text"], kText);
}

class RoutedExpertsTest : public ServiceTest {
 protected:
  RoutedExpertsTest() {
    finish();
    start({.model = "m", .max_sequence = 64, .returns_experts = true});
  }
  // What EchoBackend says of positions [begin, end).
  static std::string experts_of(int begin, int end) {
    std::vector<int32_t> values;
    for (int position = begin; position < end; ++position) {
      for (int i = 0; i < 6; ++i) values.push_back(10 * position + i);
    }
    return formats::base64(formats::npy_of(values, std::vector<int64_t>{end - begin, 3, 2}));
  }
};

TEST_F(RoutedExpertsTest, AreInEachChoiceOfAWholeReply) {
  const json body =
      complete({{"model", "m"}, {"prompt", {5, 6, 7}}, {"max_tokens", 2}, {"n", 2}}).body_json();
  ASSERT_EQ(body["choices"].size(), 2u);
  for (const json& choice : body["choices"]) {
    EXPECT_EQ(choice["routed_experts"], experts_of(0, 4)) << choice.dump();
  }
  const json from = {
      {"model", "m"}, {"prompt", {5, 6, 7}}, {"max_tokens", 2}, {"routed_experts_prompt_start", 3}};
  EXPECT_EQ(complete(from).body_json()["choices"][0]["routed_experts"], experts_of(3, 4));
  json behind = from;
  behind["routed_experts_prompt_start"] = 1'000'000;
  EXPECT_EQ(complete(behind).body_json()["choices"][0]["routed_experts"], experts_of(0, 0));
  const json chat_body = chat({{"model", "m"},
                               {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                               {"max_tokens", 1}})
                             .body_json();
  EXPECT_EQ(chat_body["choices"][0]["routed_experts"],
            experts_of(0, chat_body["usage"]["prompt_tokens"].get<int>()));
}

TEST_F(RoutedExpertsTest, StreamsHaveNone) {
  const Reply reply = complete({{"model", "m"}, {"prompt", "x"}, {"stream", true}});
  EXPECT_THAT(reply.body, Not(HasSubstr("routed_experts")));
  EXPECT_FALSE(backend_.last_request.returns_experts);
}

TEST_F(RoutedExpertsTest, OfAnAnswerThatAStopStringEnds) {
  const json request = {
      {"model", "m"}, {"prompt", {5, 6, 7}}, {"max_tokens", 40}, {"stop", "ee, a"}};
  const json body = complete(request).body_json();
  EXPECT_EQ(body["choices"][0]["text"], "One two thr");
  EXPECT_EQ(backend_.num_cut, 1);
  EXPECT_EQ(backend_.cancelled, 0);
  const int tokens = body["usage"]["completion_tokens"];
  EXPECT_EQ(body["choices"][0]["routed_experts"], experts_of(0, 3 + tokens - 1));

  // A rank that had not computed all of it again: it is asked for once more.
  backend_.lacking = 1;
  backend_.prompts.clear();
  EXPECT_EQ(complete(request).body_json()["choices"], body["choices"]);
  EXPECT_EQ(backend_.prompts.size(), 2u);
  EXPECT_EQ(backend_.last_request.max_tokens, tokens);
  EXPECT_EQ(static_cast<int>(backend_.last_request.answered.size()), tokens - 1);
}

// An answer whose experts are on their way is still running.
TEST_F(RoutedExpertsTest, AreWaitedFor) {
  backend_.holds_experts = true;
  auto reply = std::async(std::launch::async, [&] {
    return complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 2}});
  });
  while (on_server([&] { return service_->metrics().generated_tokens; }) < 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(on_server([&] { return service_->idle(); }));
  EXPECT_TRUE(on_server([&] { return service_->fail("the end"); }));
  EXPECT_EQ(reply.get().status, 503);
  EXPECT_TRUE(on_server([&] { return service_->idle(); }));
}

TEST_F(ServiceTest, RoutedExpertsNeedTheirOption) {
  const json body = {{"model", "m"}, {"prompt", "x"}, {"max_tokens", 2}};
  EXPECT_FALSE(complete(body).body_json()["choices"][0].contains("routed_experts"));
  const auto refused = [&](const json& start, bool stream) {
    json with = body;
    with["routed_experts_prompt_start"] = start;
    with["stream"] = stream;
    const Reply reply = complete(with);
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(reply.body_json()["error"]["param"], "routed_experts_prompt_start");
    return reply.body;
  };
  EXPECT_THAT(refused(0, false), HasSubstr("--enable-return-routed-experts"));
  EXPECT_THAT(refused(-1, false), HasSubstr("expected an integer from 0 to"));
  EXPECT_THAT(refused("1", false), HasSubstr("expected an integer from 0 to"));
  EXPECT_THAT(refused(1, true), HasSubstr("expected stream: false"));
}

TEST_F(ServiceTest, SeveralPromptsAndAnswers) {
  const json body =
      complete(
          {{"model", "m"}, {"prompt", {"a", "b"}}, {"n", 2}, {"max_tokens", 3}, {"logprobs", 1}})
          .body_json();
  ASSERT_EQ(body["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    const json& logprobs = body["choices"][i]["logprobs"];
    EXPECT_EQ(logprobs["token_logprobs"], json({-0.5, -0.5, -0.5}));
    std::string text;
    for (const json& token : logprobs["tokens"]) text += token.get<std::string>();
    EXPECT_EQ(json(text), body["choices"][i]["text"]);
    EXPECT_EQ(logprobs["text_offset"][0], 0);
  }
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
  EXPECT_EQ(complete({{"model", "m"}, {"prompt", {5, 6, 7}}}).status, 200);
  EXPECT_EQ(backend_.last_request.prompt.ids(), (std::vector<int32_t>{5, 6, 7}));
}

TEST_F(ServiceTest, LikelyTokensAreInTheReply) {
  const json body = complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 3}, {"logprobs", 2}})
                        .body_json()["choices"][0]["logprobs"];
  ASSERT_EQ(body["top_logprobs"].size(), 3u);
  EXPECT_EQ(body["top_logprobs"][0].size(), 2u);  // the chosen one is among them
  EXPECT_EQ(body["top_logprobs"][2].size(), 3u);
  EXPECT_EQ(body["top_logprobs"][2][body["tokens"][2].get<std::string>()], -0.5);
  const json question = {{{"role", "user"}, {"content", "Hi"}}};
  const json logprobs = chat({{"model", "m"},
                              {"messages", question},
                              {"max_tokens", 2},
                              {"logprobs", true},
                              {"top_logprobs", 20}})
                            .body_json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(logprobs.size(), 2u);
  ASSERT_EQ(logprobs[0]["top_logprobs"].size(), 20u);
  EXPECT_EQ(logprobs[0]["top_logprobs"][0]["logprob"], -0.25);
  EXPECT_EQ(logprobs[0]["top_logprobs"][0]["token"], logprobs[0]["token"]);
  EXPECT_EQ(logprobs[0]["top_logprobs"][0]["bytes"], logprobs[0]["bytes"]);
  EXPECT_EQ(chat({{"model", "m"}, {"messages", question}, {"top_logprobs", 2}}).status, 400);
  EXPECT_EQ(chat({{"model", "m"}, {"messages", question}, {"logprobs", true}, {"top_logprobs", 21}})
                .status,
            400);
  EXPECT_EQ(complete({{"model", "m"}, {"prompt", "x"}, {"logprobs", 6}}).status, 400);
}

// What vLLM's clients say of single tokens goes to the engine as it is.
TEST_F(ServiceTest, RulesOfTokensReachTheEngine) {
  const json body = {{"model", "m"},
                     {"prompt", "x"},
                     {"max_tokens", 9},
                     {"min_tokens", 3},
                     {"stop_token_ids", {7, 8}},
                     {"allowed_token_ids", {300, 7, 300, 7}},
                     {"bad_words", {"two", " and", "two", "two"}},
                     {"priority", 0},
                     {"cache_salt", "s"},
                     {"keep_alive", -1}};
  ASSERT_EQ(complete(body).status, 200) << complete(body).body;
  const engine::TokenRules& rules = *backend_.last_request.rules;
  EXPECT_EQ(backend_.last_request.salt, "s");
  EXPECT_EQ(rules.min_tokens, 3);
  EXPECT_EQ(rules.stop_tokens, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(rules.allowed, (std::vector<int32_t>{7, 300}));
  EXPECT_EQ(rules.banned[0], tokenizer_.encode("two", false));
  const auto has = [&](const char* word) {
    const auto tokens = tokenizer_.encode(word, false);
    return std::ranges::find(rules.banned, tokens) != rules.banned.end();
  };
  EXPECT_TRUE(has(" and"));
  EXPECT_EQ(std::ranges::count(rules.banned, rules.banned[0]), 1);
  EXPECT_EQ(has(" two"), tokenizer_.encode(" two", false).size() == rules.banned[0].size());
  // Of a prompt that is scored, too.
  for (const json& more : {json::object(), json{{"prompt_logprobs", 1}}}) {
    backend_.rules.clear();
    json of_three = body;
    of_three["n"] = 3;
    of_three.update(more);
    ASSERT_EQ(complete(of_three).status, 200);
    ASSERT_EQ(backend_.rules.size(), 3u);
    EXPECT_TRUE(backend_.rules[0].is_copy_of(backend_.rules[1]));
    EXPECT_TRUE(backend_.rules[0].is_copy_of(backend_.rules[2]));
  }
  const std::pair<json, const char*> kMistakes[] = {
      {{{"min_tokens", 10}}, "min_tokens: expected at most 9, as max_tokens has it, found 10"},
      {{{"stop_token_ids", {-1}}}, "stop_token_ids: expected a list of at most 128 token ids"},
      {{{"stop_token_ids", {99999999}}}, "stop_token_ids: the model has no token 99999999"},
      {{{"allowed_token_ids", json::array()}}, "allowed_token_ids: expected some token ids"},
      {{{"allowed_token_ids", {1}}, {"guided_regex", "a"}}, "beside guided_regex"},
      {{{"bad_words", {""}}}, "bad_words: expected a list"},
      {{{"priority", 1}}, "priority: an order of requests by priority is not supported"},
      {{{"prompt_logprobs", 1}, {"stream", true}}, "prompt_logprobs: a stream has none"},
      {{{"echo", true}, {"logprobs", 1}, {"guided_regex", "a"}}, "echo: with logprobs beside"}};
  for (const auto& [more, message] : kMistakes) {
    json wrong = {{"model", "m"}, {"prompt", "x"}, {"max_tokens", 9}};
    wrong.update(more);
    const Reply reply = complete(wrong);
    EXPECT_EQ(reply.status, 400) << more;
    EXPECT_THAT(reply.body_json()["error"]["message"].get<std::string>(), HasSubstr(message));
  }
}

TEST_F(ServiceTest, StopStringsMayBeShownAndWaitForTheLeastTokens) {
  const json body = {{"model", "m"}, {"prompt", "x"}, {"max_tokens", 40}, {"stop", "t"}};
  const auto text = [&](const json& more) {
    json all = body;
    all.update(more);
    return complete(all).body_json()["choices"][0]["text"].get<std::string>();
  };
  EXPECT_EQ(text(json::object()), "One ");
  EXPECT_EQ(text({{"include_stop_str_in_output", true}}), "One t");
  const std::string late = text({{"min_tokens", 3}});
  EXPECT_GT(late.size(), std::string("One two").size());
  EXPECT_THAT(kText, StartsWith(late));
  // The end token has text if it is wanted.
  EXPECT_EQ(text({{"stop", nullptr},
                  {"include_stop_str_in_output", true},
                  {"skip_special_tokens", false}}),
            kText + std::string(tokenizer_.id_to_token(1)));
  EXPECT_EQ(text({{"stop", nullptr}, {"skip_special_tokens", false}}), kText);
}

// As lm-evaluation-harness asks for it.
TEST_F(ServiceTest, PromptsAreScored) {
  const std::vector<int32_t> prompt = tokenizer_.encode("Count to three.");
  const auto size = prompt.size();
  json body = {{"model", "m"}, {"prompt", prompt}, {"max_tokens", 1},
               {"echo", true}, {"logprobs", 1},    {"temperature", 0}};
  const Reply reply = complete(body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(backend_.last_request.prompt.ids(), std::vector<int32_t>{prompt[0]});
  EXPECT_EQ(backend_.last_request.rules->forced,
            std::vector<int32_t>(prompt.begin() + 1, prompt.end()));
  EXPECT_EQ(backend_.last_request.max_tokens, static_cast<int>(size));
  const json choice = reply.body_json()["choices"][0];
  const std::string first =
      tokenizer_.decode(std::vector<int32_t>{tokenizer_.encode(kText, false)[0]});
  EXPECT_EQ(choice["text"], tokenizer_.decode(prompt) + first);
  EXPECT_EQ(choice["finish_reason"], "length");
  const json& logprobs = choice["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), size + 1);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  for (size_t i = 1; i <= size; ++i) {
    EXPECT_EQ(logprobs["token_logprobs"][i], -0.5);
    EXPECT_GE(logprobs["top_logprobs"][i].size(), 1u);
  }
  EXPECT_EQ(logprobs["text_offset"][size], tokenizer_.decode(prompt).size());
  EXPECT_EQ(reply.body_json()["usage"]["prompt_tokens"], size);
  EXPECT_EQ(reply.body_json()["usage"]["completion_tokens"], 1);

  body["max_tokens"] = 0;
  const json alone = complete(body).body_json();
  EXPECT_EQ(alone["choices"][0]["text"], tokenizer_.decode(prompt));
  EXPECT_EQ(alone["choices"][0]["logprobs"]["tokens"].size(), size);
  EXPECT_EQ(alone["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(alone["usage"]["completion_tokens"], 0);
  // Nothing to compute: no rank is asked.
  const size_t asked = backend_.prompts.size();
  for (const json& nothing : {json{{"logprobs", nullptr}}, json{{"prompt", {5}}}}) {
    json changed = body;
    changed.update(nothing);
    const json whole = complete(changed).body_json();
    EXPECT_EQ(whole["choices"][0]["finish_reason"], "length") << whole;
    changed["stream"] = true;
    EXPECT_EQ(complete(changed).events()[0]["choices"][0]["text"], whole["choices"][0]["text"]);
  }
  EXPECT_EQ(backend_.prompts.size(), asked);

  // Several prompts of token ids, as evaluations send them, each scored by itself.
  json several = body;
  several["max_tokens"] = 1;
  several["prompt"] = {prompt, {prompt[0], prompt[2], prompt[1]}};
  const Reply both = complete(several);
  ASSERT_EQ(both.status, 200) << both.body;
  ASSERT_EQ(both.body_json()["choices"].size(), 2u);
  EXPECT_EQ(both.body_json()["choices"][0]["logprobs"], logprobs);
  EXPECT_EQ(both.body_json()["choices"][1]["index"], 1);
  EXPECT_EQ(both.body_json()["choices"][1]["logprobs"]["token_logprobs"].size(), 4u);
  EXPECT_EQ(both.body_json()["choices"][1]["logprobs"]["tokens"][1],
            tokenizer_.decode(std::vector<int32_t>{prompt[2]}));

  // A stream is the same in pieces.
  body["max_tokens"] = 40;
  body["stream"] = true;
  std::string text;
  size_t tokens = 0;
  for (const json& event : complete(body).events()) {
    text += event["choices"][0]["text"];
    tokens += event["choices"][0]["logprobs"]["tokens"].size();
  }
  EXPECT_EQ(text, tokenizer_.decode(prompt) + kText);
  EXPECT_EQ(tokens, size + tokenizer_.encode(kText, false).size() + 1);
}

TEST_F(ServiceTest, PromptsHaveLogprobsAsVllmShowsThem) {
  const json body = complete({{"model", "m"},
                              {"prompt", {5, 6, 7}},
                              {"max_tokens", 2},
                              {"prompt_logprobs", 2},
                              {"return_token_ids", true}})
                        .body_json();
  const json& choice = body["choices"][0];
  ASSERT_EQ(choice["prompt_logprobs"].size(), 3u) << body;
  EXPECT_TRUE(choice["prompt_logprobs"][0].is_null());
  EXPECT_EQ(choice["prompt_logprobs"][1]["6"]["logprob"], -0.5);
  EXPECT_EQ(choice["prompt_logprobs"][1].size(), 3u);  // two likely ones, and the token
  EXPECT_EQ(choice["prompt_token_ids"], json({5, 6, 7}));
  EXPECT_EQ(choice["token_ids"].size(), 2u);
  EXPECT_TRUE(choice["logprobs"].is_null());
  EXPECT_THAT(choice["text"].get<std::string>(), StartsWith("O"));
  const json answer = chat({{"model", "m"},
                            {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                            {"max_tokens", 2},
                            {"prompt_logprobs", 0},
                            {"return_token_ids", true}})
                          .body_json();
  EXPECT_EQ(answer["prompt_logprobs"].size(), answer["usage"]["prompt_tokens"]);
  EXPECT_EQ(answer["prompt_token_ids"].size(), answer["usage"]["prompt_tokens"]);
  EXPECT_EQ(answer["choices"][0]["token_ids"].size(), 2u);
}

TEST_F(ServiceTest, StreamsMayShowIdsAndUsageInEachChunk) {
  const std::vector<json> events =
      chat({{"model", "m"},
            {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
            {"stream", true},
            {"return_token_ids", true},
            {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}})
          .events();
  std::vector<int32_t> ids;
  int num_prompts = 0;
  for (const json& event : events) {
    if (event.contains("prompt_token_ids")) ++num_prompts;
    if (event["choices"].empty() || !event["choices"][0].contains("token_ids")) continue;
    for (const json& id : event["choices"][0]["token_ids"]) ids.push_back(id);
    EXPECT_EQ(event["usage"]["completion_tokens"], ids.size());
  }
  std::vector<int32_t> expected = tokenizer_.encode(kText, false);
  expected.push_back(1);
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(num_prompts, 1);
}

TEST_F(ServiceTest, StreamsGoOnAtAnotherServer) {
  const json chat = {
      {"model", "m"},
      {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
      {"n", 2},
      {"temperature", 1},
      {"logprobs", true},
      {"top_logprobs", 3},
      {"return_token_ids", true},
      {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}};
  // Which of several answers is ahead may change.
  const auto one_by_one = [](std::string& text) {
    std::vector<std::string> answers(2);
    std::string rest;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find("\n\n", at) + 2;
      const std::string event = text.substr(at, end - at);
      const size_t index = event.find("\"index\":");
      (index == event.npos ? rest : answers.at(event.at(index + 8) - '0')) += event;
      at = end;
    }
    text = answers[0] + answers[1] + rest;
  };
  backend_.cached_tokens = 2;
  expect_resumes("/v1/chat/completions", chat, one_by_one);
  const json completion = {{"model", "m"}, {"prompt", {{5, 6, 7}, {8, 9}}}, {"max_tokens", 9}};
  expect_resumes("/v1/completions", completion, one_by_one);
  const json stopped = {{"model", "m"}, {"prompt", "Count"}, {"stop", "three"}};
  expect_resumes("/v1/completions", stopped);
  backend_.cached_tokens = 0;
  const json scored = {{"model", "m"}, {"prompt", {5, 6, 7}}, {"echo", true}, {"logprobs", 2}};
  expect_resumes("/v1/completions", scored);
}

// Which is told to the client, but no part of the answer.
TEST_F(ServiceTest, StreamsWithProgressGoOnAtAnotherServer) {
  expect_resumes("/v1/completions",
                 {{"model", "m"}, {"prompt", "Count to three."}, {"return_progress", true}},
                 [](std::string& text) {
                   std::string rest;
                   for (size_t at = 0; at < text.size();) {
                     const size_t end = text.find("\n\n", at) + 2;
                     const std::string event = text.substr(at, end - at);
                     if (event.find("prompt_progress") == event.npos) rest += event;
                     at = end;
                   }
                   text = rest;
                 });
}

// What the servers' settings say of the bytes is that of the first one.
TEST_F(ServiceTest, StreamsGoOnAtAServerWithOtherSettings) {
  const ServiceOptions first{.model = "m",
                             .max_sequence = 64,
                             .max_queue = 8,
                             .stream_interval = 3,
                             .draft_metrics = DraftMetrics::kDetailed,
                             .max_drafts = 3,
                             .reuses_pages = true};
  const ServiceOptions second{
      .model = "other", .other_name = "m", .max_sequence = 64, .max_queue = 8};
  const std::string body =
      json{{"model", "m"},
           {"prompt", std::vector<int>(40, 5)},
           {"stream", true},
           {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}}
          .dump();
  finish();
  start(first);
  backend_.per_step = 2;
  const Reply whole = ask("POST", "/v1/completions", body, "X-Wideep-Journal: 1\r\n");
  StreamJournalMemory memory;
  const std::string expected = StreamJournal(memory).take(whole.body);
  finish();
  start(second);
  for (size_t cut = whole.body.find("\n\n") + 2; cut < whole.body.size(); cut += 101) {
    StreamJournal journal(memory);
    std::string got = journal.take(std::string_view(whole.body).substr(0, cut));
    const auto counted = [this] {
      return on_server([&] { return service_->metrics().prompt_tokens; });
    };
    const auto before = counted();
    const Reply rest = resume("/v1/completions", body, journal);
    EXPECT_EQ(counted(), before + 40);
    journal.begin_again();
    got += journal.take(rest.body);
    EXPECT_EQ(got, expected);
  }
}

TEST_F(ServiceTest, RecordsOfAnAnswerAreChecked) {
  const std::string path = "/v1/completions";
  const json body = {{"model", "m"}, {"prompt", {5, 6}}, {"stream", true}, {"max_tokens", 4}};
  const std::string request = body.dump();
  const std::string size = std::to_string(request.size());
  const auto send = [&](const std::string& header, const std::vector<std::string>& records) {
    std::string all = request;
    for (const std::string& each : records) all += formats::base64(each) + "\n";
    return ask("POST", path, all, "X-Wideep-Resume: " + header + "\r\n");
  };
  const std::string head = record_of(AnswerHead{.id = "cmpl-7", .created = 5, .model = "m"});
  run::Token token{.sampled = {.token = 7}, .digest = {}, .likely = {}};
  EXPECT_THAT(send(size, {head, record_of(0, token)}).body, HasSubstr("\"id\":\"cmpl-7\""));
  const auto expect_refused = [&](const std::vector<std::string>& records) {
    const Reply reply = send(size, records);
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_THAT(reply.body, HasSubstr("X-Wideep-Resume: "));
  };
  expect_refused({record_of(0, token)});
  expect_refused({head, head});
  expect_refused({head, record_of(1, token)});
  expect_refused({head, "x"});
  expect_refused({record_of(AnswerHead{.id = "resp_7", .created = 5, .model = "m"})});
  expect_refused({record_of(AnswerHead{.id = "cmpl-\n", .created = 5, .model = "m"})});
  expect_refused({record_of(AnswerHead{.id = "cmpl-7", .created = 5, .model = "another"})});
  token.sampled.token = -1;
  expect_refused({head, record_of(0, token)});
  token.sampled.token = 1 << 30;
  expect_refused({head, record_of(0, token)});
  for (const char* bad : {"", "x", "1x", "-1", "100000"}) {
    const Reply reply = send(bad, {head});
    EXPECT_EQ(reply.status, 400) << bad;
  }
  // Where nothing was sent before, there is nothing to go on with.
  json plain = body;
  plain["stream"] = false;
  const std::string text = plain.dump();
  const Reply reply = ask("POST", path, text + formats::base64(head) + "\n",
                          "X-Wideep-Resume: " + std::to_string(text.size()) + "\r\n");
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_NE(reply.body_json()["id"], "cmpl-7");
}

TEST_F(ServiceTest, TheLastMessageGoesOn) {
  const json messages = {{{"role", "user"}, {"content", "Hi"}},
                         {{"role", "assistant"}, {"content", "One t"}}};
  json body = {{"model", "m"},
               {"messages", messages},
               {"max_tokens", 1},
               {"add_generation_prompt", false},
               {"continue_final_message", true}};
  ASSERT_EQ(chat(body).status, 200) << chat(body).body;
  const std::vector<int32_t> expected = tokenizer_.encode("<s>[user] HiOne t", false);
  EXPECT_EQ(backend_.last_request.prompt.ids(), expected);
  json counted = body;
  counted.erase("max_tokens");
  const json tokens = ask("POST", "/tokenize", counted.dump()).body_json();
  EXPECT_EQ(tokens["tokens"], json(expected)) << tokens;
  body["add_generation_prompt"] = true;
  EXPECT_THAT(chat(body).body, HasSubstr("continue_final_message: expected add_generation_prompt"));
  body["add_generation_prompt"] = false;
  body["messages"].erase(1);
  EXPECT_THAT(chat(body).body, HasSubstr("expected a text of role assistant as the last message"));
}

TEST_F(ServiceTest, ThoughtsHaveALimit) {
  finish();
  start({.model = "m", .max_sequence = 256});
  json body = {{"model", "m"},
               {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
               {"max_tokens", 1},
               {"chat_template", "opens"},
               {"thinking_token_budget", 5}};
  ASSERT_EQ(chat(body).status, 200) << chat(body).body;
  const engine::ThoughtLimit& limit = backend_.last_request.rules->thought;
  EXPECT_EQ(limit.max_tokens, 5);
  EXPECT_TRUE(limit.is_open);
  EXPECT_EQ(limit.begin, tokenizer_.encode("<think>", false));
  EXPECT_EQ(limit.end, tokenizer_.encode("</think>", false));
  body["chat_template"] = "default";
  EXPECT_THAT(chat(body).body, HasSubstr("thinking_token_budget: this model's chat template shows "
                                         "no known format of reasoning"));
}

// A proxy would close a connection on which nothing comes while a prompt is computed.
TEST_F(ServiceTest, SilentStreamsHaveComments) {
  backend_.max_tokens = 0;
  auto reply = std::async(std::launch::async, [&] {
    return complete({{"model", "m"}, {"prompt", "x"}, {"stream", true}});
  });
  while (on_server([&] { return service_->metrics().running; }) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < 3; ++i) on_server([&] { return service_->ping(), 0; });
  on_server([&] { return service_->fail("the end"); });
  EXPECT_THAT(reply.get().body, HasSubstr(": keep-alive\n\n"));
}

TEST_F(ServiceTest, MistakesAreNamed) {
  const auto complaint = [&](const json& body) {
    const Reply reply = complete(body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    const json error = reply.body_json()["error"];
    EXPECT_EQ(error["type"], "invalid_request_error");
    return error["message"].get<std::string>();
  };
  const auto with = [](const char* name, const json& value) {
    json body = {{"model", "m"}, {"prompt", "x"}};
    body[name] = value;
    return body;
  };
  EXPECT_THAT(complaint(with("max_tokens", -2)),
              HasSubstr("max_tokens: expected an integer from -1"));
  EXPECT_THAT(complaint(with("max_tokens", 0)),
              HasSubstr("max_tokens: expected 1 or more tokens, or -1"));
  EXPECT_THAT(complaint(with("max_tokens", "9")), HasSubstr("found \"9\""));
  EXPECT_THAT(complaint(with("temperature", -0.1)), HasSubstr("temperature"));
  EXPECT_THAT(complaint(with("top_p", 0)), HasSubstr("top_p"));
  EXPECT_THAT(complaint(with("n", 0)), HasSubstr("n: expected"));
  EXPECT_THAT(complaint(with("stop", json::array({1}))), HasSubstr("stop: expected"));
  EXPECT_THAT(complaint(with("prompt", json::array())), HasSubstr("prompt: expected"));
  EXPECT_THAT(complaint(with("prompt", {1, -2})), HasSubstr("prompt: expected"));
  EXPECT_THAT(complaint(with("prompt", {1, 999999})), HasSubstr("no token 999999"));
  EXPECT_THAT(complaint(with("presence_penalty", 3)), HasSubstr("expected a number from -2 to 2"));
  EXPECT_THAT(complaint(with("repetition_penalty", 0)), HasSubstr("expected a number above 0"));
  EXPECT_THAT(complaint(with("logit_bias", {{"x", 1}})), HasSubstr("found \"x\": 1"));
  EXPECT_THAT(complaint(with("logit_bias", {{"1", 101}})), HasSubstr("found \"1\": 101"));
  EXPECT_THAT(complaint(with("logit_bias", {{"99999999", 1}})), HasSubstr("no token 99999999"));
  EXPECT_THAT(complaint(with("echo", 1)), HasSubstr("echo: expected true or false"));
  EXPECT_THAT(complaint(with("best_of", 3)), HasSubstr("best_of"));
  EXPECT_THAT(complaint(with("sead", 3)), HasSubstr("sead: this field is not known"));
  EXPECT_THAT(complaint(with("prompt", std::vector<int>(64, 5))),
              StartsWith("This model's maximum context length is 64 tokens, and 64 tokens of the "
                         "prompt and 16 to generate are more"));
  EXPECT_THAT(complaint({{"model", "m"}}), HasSubstr("prompt: expected"));
  EXPECT_THAT(ask("POST", "/v1/completions", "{\"model\": ").body,
              HasSubstr("body:1:10: not valid JSON"));
  EXPECT_THAT(ask("POST", "/v1/completions", "[]").body, HasSubstr("no JSON object"));
  EXPECT_THAT(ask("POST", "/v1/completions", std::string(2000, '[')).body,
              HasSubstr("nested deeper"));
  json options = with("stream", true);
  options["stream_options"] = {{"include_usage", "yes"}};
  EXPECT_THAT(complaint(options), HasSubstr("stream_options.include_usage: expected true or"));
  options["stream_options"] = {{"include_usage", true}, {"typo", 1}};
  EXPECT_THAT(complaint(options), HasSubstr("stream_options.typo: this field is not known"));
  const Reply unknown = complete({{"model", "q"}, {"prompt", "x"}});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.body_json()["error"]["code"], "model_not_found");
  EXPECT_EQ(chat({{"model", "m"}, {"messages", json::array()}}).status, 400);
  EXPECT_EQ(chat({{"model", "m"}, {"messages", {{{"content", "x"}}}}}).status, 400);
  EXPECT_EQ(ask("GET", "/v1/completions").status, 405);
  EXPECT_EQ(ask("GET", "/nowhere").status, 404);
  EXPECT_EQ(ask("POST", "/v1/completions", std::string(5000, ' ')).status, 413);
}

// Members are found one after the other: many of them would take the thread for minutes.
// A model's embedding often has more rows than its tokenizer has tokens.
TEST_F(ServiceTest, PromptIdsBetweenTokenizerAndVocabularyAreAccepted) {
  finish();
  start({.model = "m", .vocab_size = 100000, .max_sequence = 64, .max_queue = 8});
  const auto status_of = [&](int id) {
    const json body = {{"model", "m"}, {"prompt", {1, id}}, {"max_tokens", 1}};
    return ask("POST", "/v1/completions", body.dump());
  };
  EXPECT_EQ(status_of(99999).status, 200);
  EXPECT_EQ(status_of(100000).status, 400);
  EXPECT_THAT(status_of(100000).body,
              HasSubstr("the model has no token 100000; expected 0 to 99999"));
}

TEST_F(ServiceTest, ObjectsOfManyMembersAreRefused) {
  finish();
  start({.model = "m", .max_sequence = 64}, size_t{8} << 20);
  const auto body_with = [](int members) {
    json body = {{"model", "m"}, {"prompt", "x"}, {"metadata", {{"nested", json::object()}}}};
    for (int i = 0; i < members; ++i) body["metadata"]["nested"]["k" + std::to_string(i)] = "a:b";
    return body;
  };
  EXPECT_EQ(complete(body_with(512)).status, 200);
  const int64_t before = base::wall_ns();
  for (const int members : {513, 300'000}) {
    const Reply reply = complete(body_with(members));
    EXPECT_EQ(reply.status, 400);
    EXPECT_THAT(reply.body, HasSubstr("an object of more than 512 members"));
  }
  EXPECT_LT(base::wall_ns() - before, int64_t{30'000'000'000});  // minutes, if each were compared
  // Lists may be long, of objects too.
  json many = body_with(1);
  for (int i = 0; i < 2000; ++i) many["metadata"]["list"].push_back({{"a", 1}});
  EXPECT_EQ(complete(many).status, 200);
}

TEST_F(ServiceTest, FullQueuesRefuse) {
  EXPECT_EQ(complete({{"model", "m"}, {"prompt", "x"}, {"n", 8}}).status, 200);
  // There will never be room for more than the queue has.
  const Reply never = complete({{"model", "m"}, {"prompt", "x"}, {"n", 9}});
  EXPECT_EQ(never.status, 400);
  EXPECT_EQ(never.body_json()["error"]["param"], "n");
  on_server([&] { return service_->metrics().running = 1; });
  const Reply reply = complete({{"model", "m"}, {"prompt", "x"}, {"n", 8}});
  EXPECT_EQ(reply.status, 429);
  EXPECT_THAT(reply.head, HasSubstr("Retry-After: 1"));
  EXPECT_THAT(reply.body, HasSubstr("1 answers run or wait and 8 more are asked for, at most 8"));
  on_server([&] { return service_->metrics().running = 0; });
}

TEST_F(ServiceTest, WhatTheServerSetsIsNoVariableOfATemplate) {
  const auto with = [&](const char* name, const json& value) {
    return chat({{"model", "m"},
                 {"messages", {{{"role", "user"}, {"content", "x"}}}},
                 {"chat_template_kwargs", {{name, value}}}});
  };
  EXPECT_EQ(with("enable_thinking", false).status, 200);
  EXPECT_EQ(with("add_generation_prompt", true).status, 200);
  const Reply refused = with("add_generation_prompt", false);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("chat_template_kwargs.add_generation_prompt"));
  EXPECT_EQ(with("bos_token", "x").status, 400);
  EXPECT_THAT(with("pad_token", "x").body, HasSubstr("chat_template_kwargs.pad_token"));
}

// Of as many tokens as the prompt counts with, for each answer.
TEST_F(ServiceTest, TheShareOfCachedTokensIsAFraction) {
  backend_.cached_tokens = 4;
  const json usage =
      complete({{"model", "m"}, {"prompt", {5, 6, 7, 8, 9}}, {"n", 8}}).body_json()["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 5);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 4);
  const std::string metrics = ask("GET", "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("\nwideep_prompt_tokens_total 40\n"));
  EXPECT_THAT(metrics, HasSubstr("\nwideep_cached_prompt_tokens_total 32\n"));
}

// Full pages behind those that were found; in all APIs, and in streams.
TEST_F(ServiceTest, WrittenTokensAreThoseOfFullPages) {
  const std::vector<int> prompt(200, 5);
  const auto details = [&](const json& more) {
    json body = {{"model", "m"}, {"prompt", prompt}};
    body.update(more);
    return complete(body).body_json()["usage"]["prompt_tokens_details"];
  };
  const auto counted = [](int cached, int written) {
    return json{{"cached_tokens", cached}, {"cache_write_tokens", written}};
  };
  finish();
  start({.model = "m", .max_sequence = 512, .max_queue = 8, .reuses_pages = true});
  EXPECT_EQ(details(json::object()), counted(0, 192));
  backend_.cached_tokens = 128;
  EXPECT_EQ(details(json::object()), counted(128, 64));
  EXPECT_EQ(details({{"n", 3}}), counted(128, 64));
  EXPECT_EQ(details({{"prompt", {prompt, prompt}}}), counted(256, 128));
  const Reply stream = complete({{"model", "m"},
                                 {"prompt", prompt},
                                 {"stream", true},
                                 {"stream_options", {{"include_usage", true}}}});
  EXPECT_THAT(stream.body, HasSubstr(R"({"cached_tokens":128,"cache_write_tokens":64})"));
  // What each part says beside its prompt is of that prompt, not of all.
  const std::vector<json> parts =
      complete({{"model", "m"},
                {"prompt", {prompt, prompt}},
                {"stream", true},
                {"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}})
          .events();
  for (const json& part : parts) {
    const bool is_last = part["choices"].empty();
    EXPECT_EQ(part["usage"]["prompt_tokens"], is_last ? 400 : 200);
    EXPECT_EQ(part["usage"]["prompt_tokens_details"],
              is_last ? counted(256, 128) : counted(128, 64));
  }
  const json response =
      ask("POST", "/v1/responses", json{{"model", "m"}, {"input", std::string(400, 'x')}}.dump())
          .body_json();
  const auto full = [](const json& tokens) { return tokens.get<int>() / 64 * 64; };
  EXPECT_EQ(response["usage"]["input_tokens_details"],
            counted(128, full(response["usage"]["input_tokens"]) - 128));
  const json message = {{"role", "user"}, {"content", std::string(400, 'x')}};
  const json usage =
      ask("POST", "/v1/messages",
          json{{"model", "m"}, {"max_tokens", 4}, {"messages", json::array({message})}}.dump())
          .body_json()["usage"];
  const int all = static_cast<int>(backend_.last_request.prompt.size());
  EXPECT_EQ(usage["cache_read_input_tokens"], 128);
  EXPECT_EQ(usage["cache_creation_input_tokens"], all / 64 * 64 - 128);
  EXPECT_EQ(usage["input_tokens"], all % 64);
  // Where pages are not shared, nobody will find them.
  finish();
  start({.model = "m", .max_sequence = 512, .max_queue = 8});
  backend_.cached_tokens = 0;
  EXPECT_EQ(details(json::object()), counted(0, 0));
}

TEST_F(ServiceTest, PlacesOfPromptsAreShown) {
  EXPECT_TRUE(ask("GET", "/dashboard/data").body_json()["prompt_cache"].is_null());
  EXPECT_THAT(ask("GET", "/metrics").body, Not(HasSubstr("wideep_prompt_cache_")));
  finish();
  start({.model = "m",
         .max_sequence = 64,
         .metrics_names = MetricsNames::kBoth,
         .prompt_places = {"host", "disk"}});
  const std::string metrics = ask("GET", "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("\nwideep_prompt_cache_hits_total{tier=\"disk\"} 0\n"));
  EXPECT_THAT(metrics, HasSubstr("\nvllm:external_prefix_cache_hits_total{model_name=\"m\""));
  const json cache = ask("GET", "/dashboard/data").body_json()["prompt_cache"];
  ASSERT_EQ(cache["tiers"].size(), 2u);
  EXPECT_EQ(cache["tiers"][0]["tier"], "host");
  EXPECT_EQ(cache["saved_seconds"], 0);
}

TEST_F(ServiceTest, KeysAreAskedFor) {
  finish();
  start({.model = "m", .api_key = "secret", .max_sequence = 64});
  EXPECT_EQ(ask("GET", "/v1/models").status, 401);
  EXPECT_EQ(ask("GET", "/v1/models", "", "Authorization: Bearer secrex\r\n").status, 401);
  EXPECT_EQ(ask("GET", "/v1/models", "", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(ask("GET", "/v1/models", "", "Authorization: bearer secret\r\n").status, 200);
  EXPECT_EQ(ask("GET", "/v1/models", "", "Authorization: Basic secret\r\n").status, 401);
  EXPECT_EQ(ask("GET", "/v1/models", "", "Authorization: Bearer \r\n").status, 401);
  EXPECT_EQ(ask("GET", "/health").status, 200);
}

TEST_F(ServiceTest, RequestsMayUseAnotherName) {
  finish();
  start({.model = "m (means nothing)", .other_name = "m", .max_sequence = 64});
  for (const char* name : {"m", "m (means nothing)"}) {
    const json reply = complete({{"model", name}, {"prompt", {5, 6}}}).body_json();
    EXPECT_EQ(reply["model"], "m (means nothing)") << reply;
  }
  EXPECT_EQ(complete({{"model", ""}, {"prompt", {5, 6}}}).status, 404);
  EXPECT_EQ(ask("GET", "/v1/models/m").body_json()["id"], "m (means nothing)");
  EXPECT_EQ(ask("GET", "/v1/models").body_json()["data"].size(), 1);
}

TEST_F(ServiceTest, RepliesWithoutTheEngine) {
  EXPECT_EQ(ask("GET", "/v1/models").body_json()["data"][0]["id"], "m");
  EXPECT_EQ(ask("GET", "/v1/models/").status, 200);
  EXPECT_EQ(ask("GET", "/v1/models/m").body_json()["id"], "m");
  EXPECT_EQ(ask("GET", "/v1/models/m/").body_json()["id"], "m");
  EXPECT_EQ(ask("GET", "/v1/models/%6d").body_json()["id"], "m");
  EXPECT_EQ(ask("GET", "/v1/models/other").status, 404);
  const Reply put = ask("PUT", "/v1/models");
  EXPECT_EQ(put.status, 405);
  EXPECT_EQ(put.body_json()["error"]["message"], "PUT /v1/models: expected GET, HEAD, OPTIONS");
  EXPECT_EQ(ask("GET", "/health").body_json()["status"], "ok");
  EXPECT_FALSE(ask("GET", "/version").body_json()["version"].get<std::string>().empty());
  complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 2}});
  const std::string metrics = ask("GET", "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("wideep_generated_tokens_total 2\n"));
  EXPECT_THAT(metrics,
              HasSubstr("wideep_replies_total{path=\"/v1/completions\",status=\"200\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_time_to_first_token_seconds_count 1\n"));
  EXPECT_THAT(metrics, HasSubstr("\nwideep_build_info{version=\""));
  EXPECT_THAT(metrics, HasSubstr(",model=\"m\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("\nprocess_resident_memory_bytes "));
}

TEST_F(ServiceTest, MetricsMayHaveTheNamesOfVllm) {
  for (const auto names : {MetricsNames::kVllm, MetricsNames::kBoth}) {
    finish();
    ServiceOptions options{.model = "m", .max_sequence = 64, .max_queue = 8};
    options.metrics_names = names;
    start(options);
    complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 2}, {"n", 2}});
    const std::string metrics = ask("GET", "/metrics").body;
    const std::string labels = "{model_name=\"m\",engine=\"0\"}";
    for (const char* name : {"time_to_first_token_seconds", "e2e_request_latency_seconds",
                             "request_queue_time_seconds", "request_prefill_time_seconds",
                             "request_decode_time_seconds", "request_inference_time_seconds",
                             "inter_token_latency_seconds"}) {
      EXPECT_THAT(metrics, HasSubstr(std::string("\nvllm:") + name + "_count" + labels + " 2\n"));
    }
    EXPECT_THAT(metrics, HasSubstr("finished_reason=\"length\"} 2\n"));
    EXPECT_THAT(metrics, HasSubstr("\nvllm:request_params_n_sum" + labels + " 2\n"));
    EXPECT_THAT(metrics, HasSubstr("\nwideep_build_info{"));
    const bool has_own = metrics.find("\nwideep_generated_tokens_total 4\n") != metrics.npos;
    EXPECT_EQ(has_own, names == MetricsNames::kBoth);
  }
}

// Two ranks with one MoE layer of three experts.
run::ExpertRanks two_ranks() {
  return {.stage_size = 2,
          .ranks = {{.moe_layers = {1}, .file = 0}, {.moe_layers = {1}, .file = 1}},
          .statistics = {.num_experts = 3, .top_k = 1, .ep_size = 2}};
}

engine::IterationRecord record(int64_t iteration, std::vector<int32_t> sent,
                               std::vector<int32_t> counts = {}) {
  engine::LayerRecord layer;
  layer.sent = std::move(sent);
  layer.counts = std::move(counts);
  engine::IterationRecord each{.iteration = iteration, .queue = {}, .layers = {layer}};
  each.records_experts = !each.layers[0].counts.empty();
  each.prompt_tokens = 2;
  each.generated_tokens = 1;
  each.queue.running = 3;
  each.queue.cache_pages = 5;
  each.queue.max_pages = 50;
  each.wall_ns = 2'000'000;
  return each;
}

// The summary of an iteration, as the serving process computes it.
std::optional<run::IterationSummary> summary_of(const std::optional<run::Iteration>& iteration) {
  if (!iteration) return {};
  return run::summarize(*iteration, two_ranks());
}

TEST(IterationSummaryTest, PutsRanksTogether) {
  run::IterationAssembler assembler(2);
  engine::IterationRecord first = record(7, {3, 1});
  first.layers[0].initial_imbalance = 1.0f;
  EXPECT_FALSE(assembler.add(0, first));
  EXPECT_FALSE(assembler.add(0, record(8, {0, 0})));  // a rank may be ahead
  const auto summary = summary_of(assembler.add(1, record(7, {3, 1})));
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->iteration, 7);
  EXPECT_EQ(summary->rank_load, (std::vector<int64_t>{6, 2}));
  EXPECT_DOUBLE_EQ(summary->imbalance_ratio(), 0.5);
  EXPECT_DOUBLE_EQ(summary->initial_imbalance.value_or(0.0), 1.0);
  EXPECT_EQ(summary->prompt_tokens, 4);
  EXPECT_EQ(summary->queue.running, 6);
  EXPECT_FALSE(summary_of(assembler.add(1, record(8, {0, 0})))->initial_imbalance);
}

TEST(RecentTimesTest, QuantilesOfWhatIsRecent) {
  RecentTimes times;
  EXPECT_EQ(times.since(0.0).count, 0u);
  times.add(1.0, 100.0);
  for (int i = 1; i <= 100; ++i) times.add(10.0, i);
  const RecentTimes::Quantiles recent = times.since(5.0);
  EXPECT_EQ(recent.count, 100u);
  EXPECT_EQ(recent.p50, 50.0);
  EXPECT_EQ(recent.p90, 90.0);
  EXPECT_EQ(recent.p99, 99.0);
  for (size_t i = 0; i < 2 * RecentTimes::kMax; ++i) times.add(11.0, 1.0);
  EXPECT_EQ(times.since(0.0).count, RecentTimes::kMax);
}

// The service with events that the ranks would send.
class MonitoredServiceTest : public ServiceTest {
 protected:
  MonitoredServiceTest() {
    finish();
    start({.model = "m",
           .max_sequence = 64,
           .ranks = two_ranks(),
           .online_totals = [] { return run::OnlineTotals(); },
           .recorder = {.directory = directory_.file("records"), .max_iterations = 2}});
    service_->recorder().connect([this](bool records) { switched_.push_back(records); },
                                 [this](auto call) { server_->post(std::move(call)); });
  }
  // A dump may be in progress when the server ends.
  ~MonitoredServiceTest() override { service_->recorder().join(); }

  void add_iteration(int64_t iteration, std::vector<int32_t> counts = {}) {
    assembler_.add(0, record(iteration, {3, 1}, counts));
    const auto all = assembler_.add(1, record(iteration, {3, 1}, counts));
    on_server([&] {
      service_->monitor().add(*summary_of(all), unix_seconds());
      service_->recorder().add(*all);
      return true;
    });
  }
  // The reply to a request that waits until the ranks have switched.
  Reply ask_ranks(const std::string& path, bool records) {
    const size_t before = on_server([&] { return switched_.size(); });
    auto reply = std::async(std::launch::async, [&] { return ask("POST", path); });
    while (on_server([&] { return switched_.size(); }) == before) std::this_thread::yield();
    on_server([&] {
      EXPECT_EQ(switched_.back(), records);
      service_->recorder().ranks_switched(records);
      return true;
    });
    return reply.get();
  }

  base::ScratchDirectory directory_;
  run::IterationAssembler assembler_{2};
  std::vector<bool> switched_;  // calls of switch_ranks
};

TEST_F(MonitoredServiceTest, PerfMetricsTellTransfersOfPrompts) {
  on_server([&] {
    const run::PeerPages came{.pages = 5,
                              .bytes = 80,
                              .seconds = 0.5,
                              .transfer_seconds = 0.375,
                              .exposed_seconds = 0.125,
                              .kind = run::PeerTrouble::kGone,
                              .trouble = "-ERR a line of that server"};
    service_->monitor().add(
        {.request_index = 3, .known_pages = 1, .fetched_pages = 4, .from_peer = came},
        "1;10.0.0.2:7000;secret;00ff;77;");
    // What an earlier server had has no name.
    service_->monitor().add({.request_index = 4, .from_peer = {}}, "1;h:7000;secret;00ff;;");
    return true;
  });
  add_iteration(0);
  add_iteration(1);
  const json all = ask("GET", "/perf_metrics").body_json()["iterations"];
  const json transfer = {{"prefill_server", "10.0.0.2:7000"},
                         {"ctx_request_id", "77"},
                         {"pages_known", 1},
                         {"pages_fetched", 4},
                         {"pages_from_server", 5},
                         {"bytes", 80},
                         {"seconds", 0.5},
                         {"seconds_hidden", 0.25},
                         {"seconds_not_hidden", 0.125},
                         {"trouble", "gone"}};
  ASSERT_EQ(all[0]["prompt_transfers"].size(), 2u);
  EXPECT_EQ(all[0]["prompt_transfers"][0], transfer);
  EXPECT_EQ(all[0]["prompt_transfers"][1]["ctx_request_id"], nullptr);
  EXPECT_FALSE(all[1].contains("prompt_transfers"));
}

TEST_F(MonitoredServiceTest, PerfMetricsReturnIterations) {
  const auto perf_metrics = [this](const std::string& query = "") {
    return ask("GET", "/perf_metrics" + query).body_json();
  };
  EXPECT_EQ(perf_metrics(), json({{"last", -1}, {"dropped", 0}, {"iterations", json::array()}}));
  add_iteration(0);
  on_server([&] {
    service_->monitor().add(online::Rebalance{.moves = 4, .bytes = 64}, unix_seconds());
    return true;
  });
  add_iteration(1);
  const json all = perf_metrics()["iterations"];
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["iteration"], 0);
  EXPECT_EQ(all[0]["num_running_requests"], 6);
  EXPECT_EQ(all[0]["num_context_tokens"], 4);
  EXPECT_EQ(all[0]["num_generated_tokens"], 2);
  EXPECT_EQ(all[0]["kv_pages_used"], 10);
  EXPECT_EQ(all[0]["kv_pages_free"], 90);
  EXPECT_EQ(all[0]["rank_load"], json({6, 2}));
  EXPECT_EQ(all[0]["imbalance_ratio"], 0.5);
  EXPECT_TRUE(all[0]["initial_imbalance_ratio"].is_null());
  EXPECT_EQ(all[0]["iteration_seconds"], 0.002);
  EXPECT_EQ(all[1]["expert_moves"], 4);
  EXPECT_EQ(all[1]["expert_moved_bytes"], 64);
  // Reading takes nothing away; a reader goes on from the last that it has seen.
  EXPECT_EQ(perf_metrics()["iterations"], all);
  EXPECT_EQ(perf_metrics("?since=0"),
            json({{"last", 1}, {"dropped", 0}, {"iterations", {all[1]}}}));
  EXPECT_EQ(perf_metrics("?since=1"),
            json({{"last", 1}, {"dropped", 0}, {"iterations", json::array()}}));
  EXPECT_EQ(ask("GET", "/perf_metrics?since=1x").status, 400);
  // Memory is bounded although nobody reads; a late reader gets the number of dropped iterations.
  for (size_t i = 0; i < Monitor::kMaxIterations + 5; ++i)
    add_iteration(static_cast<int64_t>(2 + i));
  const json late = perf_metrics("?since=1");
  EXPECT_EQ(late["last"], Monitor::kMaxIterations + 6);
  EXPECT_EQ(late["dropped"], 5);
  EXPECT_EQ(late["iterations"].size(), Monitor::kMaxIterations);
  EXPECT_EQ(late["iterations"].back()["iteration"], Monitor::kMaxIterations + 6);
  EXPECT_EQ(perf_metrics()["dropped"], 7);
  EXPECT_EQ(perf_metrics("?since=6")["dropped"], 0);
  EXPECT_EQ(perf_metrics("?since=7")["iterations"].size(), Monitor::kMaxIterations - 1);
}

// A reader must not take it for another server, whose iterations are numbered from 0.
TEST_F(MonitoredServiceTest, PerfMetricsGoOnAfterAnotherProcess) {
  on_server([&] {
    service_->monitor().go_on_after(41);
    return true;
  });
  EXPECT_EQ(ask("GET", "/perf_metrics?since=37").body_json(),
            json({{"last", 41}, {"dropped", 4}, {"iterations", json::array()}}));
  add_iteration(42);
  const json read = ask("GET", "/perf_metrics?since=41").body_json();
  EXPECT_EQ(read["last"], 42);
  EXPECT_EQ(read["dropped"], 0);
  EXPECT_EQ(read["iterations"].size(), 1);
}

// The lines of all iterations are written when these end, not for each reader.
TEST(MonitorTest, ReadingAllIterationsTakesLittle) {
  const Metrics metrics;
  Monitor monitor(8, false, metrics);
  run::IterationSummary summary;
  summary.rank_load.assign(8, 12'345);
  const int64_t start = base::thread_cpu_ns();
  for (size_t i = 0; i < Monitor::kMaxIterations; ++i) {
    summary.iteration = static_cast<int64_t>(i);
    monitor.add(summary, 0.5);
  }
  const int64_t added = base::thread_cpu_ns();
  const std::string all = monitor.iterations(-1);
  const int64_t read = base::thread_cpu_ns();
  EXPECT_LT((read - added) * 4, added - start);
  EXPECT_EQ(json::parse(all)["iterations"].size(), Monitor::kMaxIterations);
}

TEST_F(MonitoredServiceTest, QueuesAndCachesAreMeasured) {
  engine::QueueRecord queue{.running = 3, .waiting = 2, .cache_pages = 10, .max_pages = 40};
  on_server([&] {
    service_->metrics().queue = queue;
    service_->metrics().running = 5;
    return true;
  });
  const std::string busy = ask("GET", "/metrics").body;
  EXPECT_THAT(busy, HasSubstr("\nwideep_num_requests_running 3\n"));
  EXPECT_THAT(busy, HasSubstr("\nwideep_num_requests_waiting 2\n"));
  EXPECT_THAT(busy, HasSubstr("\nwideep_kv_cache_utilization 0.25\n"));
  EXPECT_THAT(busy, HasSubstr("\nwideep_kv_pages 40\n"));
  EXPECT_THAT(busy, HasSubstr("\nwideep_kv_pages_used 10\n"));
  // The last iteration still reported requests that have ended since.
  on_server([&] { return service_->metrics().running = 0; });
  const std::string idle = ask("GET", "/metrics").body;
  EXPECT_THAT(idle, HasSubstr("\nwideep_num_requests_running 0\n"));
  EXPECT_THAT(idle, HasSubstr("\nwideep_num_requests_waiting 0\n"));
  EXPECT_THAT(idle, HasSubstr("\nwideep_kv_cache_utilization 0\n"));
}

TEST_F(MonitoredServiceTest, TheDashboardTakesNothingAway) {
  add_iteration(0);
  add_iteration(1);
  EXPECT_THAT(ask("GET", "/dashboard").body, StartsWith("<!doctype html>"));
  for (int i = 0; i < 2; ++i) {
    const json data = ask("GET", "/dashboard/data").body_json();
    EXPECT_EQ(data["num_ranks"], 2);
    EXPECT_EQ(data["model"], "m");
    int64_t generated = 0;
    for (const json& second : data["seconds"]) generated += second["generated_tokens"].get<int>();
    EXPECT_EQ(generated, 4);
  }
  EXPECT_EQ(ask("GET", "/dashboard/data?since=99999999999").body_json()["seconds"], json::array());
  EXPECT_EQ(ask("GET", "/dashboard/data?since=x").status, 400);
  EXPECT_EQ(ask("GET", "/perf_metrics").body_json()["iterations"].size(), 2u);
}

TEST_F(MonitoredServiceTest, TheDashboardHasTheLoadOfALayer) {
  EXPECT_EQ(ask("GET", "/dashboard/load").body_json()["windows"], json::array());
  add_iteration(0);
  on_server([&] {
    service_->load().add(*summary_of(run::Iteration{{record(0, {3, 1}), record(0, {2, 2})}, {}}),
                         unix_seconds());
    service_->load().add(run::ExpertLoad{.first_layer = 0, .counts = {5, 2, 1}}, unix_seconds());
    return true;
  });
  const json data = ask("GET", "/dashboard/load?layer=1").body_json();
  EXPECT_EQ(data["layers"], json({1}));
  EXPECT_EQ(data["windows"][0]["sent"], json({{3, 1}, {2, 2}}));
  EXPECT_EQ(data["windows"].back()["experts"], json({5, 2, 1}));
  EXPECT_EQ(ask("GET", "/dashboard/load?since=99999999999").body_json()["windows"], json::array());
  const Reply wrong = ask("GET", "/dashboard/load?layer=2");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_THAT(wrong.body, HasSubstr("layer: expected one of the MoE layers 1, found 2"));
  EXPECT_EQ(ask("GET", "/dashboard/load?layer=x").status, 400);
  EXPECT_EQ(ask("GET", "/dashboard/load?since=x").status, 400);
}

// Not 0: it would count for the mean of the ranks, and look like an idle one.
TEST_F(MonitoredServiceTest, ARankThatIsNoMemberHasNoLoadOnTheDashboard) {
  const run::MembersChanged alone{.epoch = 2, .ranks = {0}};
  ASSERT_TRUE(assembler_.change(0, alone));
  const auto summary = summary_of(assembler_.add(0, record(0, {4})));
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->members, std::vector<int>{0});
  on_server([&] {
    service_->monitor().add(*summary, unix_seconds());
    service_->ranks().died({.rank = 1, .how = "rank 1 was killed"}, unix_seconds());
    service_->ranks().changed(alone, unix_seconds());
    return true;
  });
  const json data = ask("GET", "/dashboard/data").body_json();
  EXPECT_EQ(data["seconds"].back()["rank_load"], json({4, nullptr}));
  EXPECT_EQ(data["ranks"]["states"], json({"active", "dead"}));
  EXPECT_EQ(data["ranks"]["degraded"], "rank 1 does not compute");
  EXPECT_EQ(ask("GET", "/health").body_json(),
            json({{"status", "degraded"}, {"reason", "rank 1 does not compute"}}));
}

TEST_F(MonitoredServiceTest, RecordsOfExperts) {
  const std::string stop = "/stop_expert_distribution_record";
  const std::string start = "/start_expert_distribution_record";
  const std::string dump = "/dump_expert_distribution_record";
  EXPECT_EQ(ask("POST", stop).status, 400);
  EXPECT_EQ(ask("POST", dump).status, 400);
  EXPECT_EQ(ask("GET", start).status, 405);
  EXPECT_EQ(ask_ranks(start, true).status, 200);
  EXPECT_THAT(ask("POST", start).body, HasSubstr("already"));
  EXPECT_THAT(ask("POST", dump).body, HasSubstr("must be stopped"));
  for (int i = 0; i < 3; ++i) add_iteration(i, {i, 1, 0});
  EXPECT_EQ(ask_ranks(stop, false).body_json()["iterations"], 2);  // the last
  const json dumped = ask("POST", dump).body_json();
  EXPECT_EQ(dumped["iterations"], 2);
  const auto statistics = recordings::read_statistics(dumped["directory"]);
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_THAT(ask("POST", dump).body, HasSubstr("no iteration has been recorded"));
  // The next goes to another place.
  ask_ranks(start, true);
  add_iteration(9, {1, 1, 1});
  ask_ranks(stop, false);
  EXPECT_NE(ask("POST", dump).body_json()["directory"], dumped["directory"]);
}

// A file where the directory belongs stands for a full disk.
TEST_F(MonitoredServiceTest, AFailedDumpKeepsTheRecordingAndLeavesNothing) {
  const std::string dump = "/dump_expert_distribution_record";
  const std::string place = directory_.file("records");
  EXPECT_EQ(on_server([&] { return service_->recorder().undumped(); }), "");
  ask_ranks("/start_expert_distribution_record", true);
  add_iteration(4, {1, 1, 1});
  add_iteration(5, {1, 1, 1});
  ask_ranks("/stop_expert_distribution_record", false);
  EXPECT_EQ(on_server([&] { return service_->recorder().undumped(); }),
            "expert statistics of 2 iterations (4-6) were recorded but not dumped: they are lost");
  ASSERT_TRUE(formats::write_file(place, "in the way").ok());
  for (int i = 0; i < 2; ++i) {
    const Reply failed = ask("POST", dump);
    EXPECT_EQ(failed.status, 500);
    EXPECT_THAT(failed.body,
                AllOf(HasSubstr(place), HasSubstr("expected a directory, found another kind"),
                      HasSubstr("the recording is kept, dump it again")));
  }
  std::filesystem::remove(place);
  // Its second file cannot be written: the directory with the first one goes, too.
  rlimit unlimited;
  ::getrlimit(RLIMIT_FSIZE, &unlimited);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 100, .rlim_max = unlimited.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  const Reply too_large = ask("POST", dump);
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, before);
  EXPECT_EQ(too_large.status, 500);
  EXPECT_THAT(too_large.body, HasSubstr("File too large; raise the limit of file sizes"));
  EXPECT_FALSE(std::filesystem::exists(place));

  const json dumped = ask("POST", dump).body_json();
  EXPECT_EQ(dumped["iterations"], 2);
  EXPECT_EQ(dumped["directory"], place + "/dump-1");
  EXPECT_TRUE(recordings::read_statistics(place + "/dump-1").ok());
  EXPECT_EQ(on_server([&] { return service_->recorder().undumped(); }), "");
}

// After SIGTERM the ranks end when nobody waits any more: for another number of ranks, too.
TEST_F(MonitoredServiceTest, WhoWaitsForRanksHasNotBeenAnswered) {
  std::atomic<int> wanted{0};
  on_server([&] {
    service_->connect_scaling(
        [&](int ranks) {
          wanted = ranks;
          return Status();
        },
        [](int, auto) {});
    EXPECT_TRUE(service_->has_answered());
    return true;
  });
  auto reply = std::async(std::launch::async, [&] {
    return ask("POST", "/scale_elastic_ep", R"({"new_data_parallel_size": 1})");
  });
  while (wanted == 0) std::this_thread::yield();
  on_server([&] {
    EXPECT_FALSE(service_->has_answered());
    service_->ranks().changed({.epoch = 2, .ranks = {0}}, 0.0);
    EXPECT_TRUE(service_->has_answered());
    return true;
  });
  EXPECT_EQ(reply.get().status, 200);
  auto started = std::async(std::launch::async,
                            [&] { return ask("POST", "/start_expert_distribution_record"); });
  while (on_server([&] { return switched_.empty(); })) std::this_thread::yield();
  on_server([&] {
    EXPECT_FALSE(service_->has_answered());
    service_->recorder().ranks_switched(true);
    EXPECT_TRUE(service_->has_answered());
    return true;
  });
  EXPECT_EQ(started.get().status, 200);
}

TEST_F(ServiceTest, RecordsNeedAPlace) {
  const Reply reply = ask("POST", "/start_expert_distribution_record");
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("--expert-statistic-path"));
}

TEST_F(ServiceTest, ClientsThatLeaveEndTheirAnswers) {
  backend_.endless = true;
  finish();
  start({.model = "m", .max_sequence = 1 << 24});
  const auto running = [&] { return on_server([&] { return service_->metrics().running; }); };
  json body = {{"model", "m"}, {"prompt", "x"}, {"max_tokens", 10'000'000}};
  {  // a client that has received nothing yet
    Socket socket(server_->port());
    socket.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                std::to_string(body.dump().size()) + "\r\n\r\n" + body.dump());
    while (running() == 0) std::this_thread::yield();
  }
  for (int i = 0; i < 1000 && backend_.cancelled == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(backend_.cancelled, 1);
  EXPECT_EQ(running(), 0);
  backend_.cancelled = 0;
  body["stream"] = true;
  {
    Socket socket(server_->port());
    socket.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                std::to_string(body.dump().size()) + "\r\n\r\n" + body.dump());
    EXPECT_THAT(socket.receive(), StartsWith("HTTP/1.1 200"));
  }
  for (int i = 0; i < 1000 && backend_.cancelled == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(backend_.cancelled, 1);
  EXPECT_TRUE(on_server([&] { return service_->idle(); }));
}

// It never reads, and is cut off; others are served meanwhile.
TEST_F(ServiceTest, SlowReadersDelayNoOtherClient) {
  backend_.endless = true;
  finish();
  start({.model = "m", .max_sequence = 1 << 24});
  const json body = {{"model", "m"}, {"prompt", "x"}, {"max_tokens", 10'000'000}, {"stream", true}};
  Socket slow(server_->port());
  slow.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
            std::to_string(body.dump().size()) + "\r\n\r\n" + body.dump());
  EXPECT_EQ(complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 5}}).status, 200);
  for (int i = 0; i < 4000 && backend_.cancelled == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(backend_.cancelled, 1);
}

// As where it waits for pages of another server.
TEST_F(ServiceTest, ARequestThatNoRankHasYetIsNotOverdue) {
  backend_.max_tokens = 0;
  auto reply = std::async(std::launch::async, [&] {
    return complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", 2}});
  });
  while (on_server([&] { return service_->metrics().running; }) < 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(ask("GET", "/health").status, 200);
  on_server([&] { return backend_.computing_since = 0.0; });
  EXPECT_EQ(ask("GET", "/health").body_json()["error"]["code"], "iteration_overdue");
  on_server([&] { return service_->fail("the end"); });
  EXPECT_EQ(reply.get().status, 503);
}

TEST_F(ServiceTest, DrainingRefusesNewRequestsOnly) {
  on_server([&] {
    service_->drain();
    return true;
  });
  EXPECT_EQ(complete({{"model", "m"}, {"prompt", "x"}}).status, 503);
  EXPECT_EQ(ask("GET", "/health").status, 503);
  EXPECT_EQ(ask("GET", "/v1/models").status, 200);
}

TEST(StopStringsTest, KeepBackTextThatMayBecomeAStopString) {
  StopStrings stop({"</s>", "<END>"});
  EXPECT_EQ(stop.push("a<"), "a");
  EXPECT_EQ(stop.push("/"), "");
  EXPECT_EQ(stop.push("b<E"), "</b");
  EXPECT_EQ(stop.push("ND"), "");
  EXPECT_FALSE(stop.found());
  EXPECT_EQ(stop.push(">after"), "");
  EXPECT_TRUE(stop.found());
  EXPECT_EQ(stop.match(), "<END>");
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.match(), "<END>");
  StopStrings first({"yz", "x"});  // where it begins counts
  EXPECT_EQ(first.push("wxyz"), "w");
  EXPECT_EQ(first.match(), "x");
  StopStrings other({"xyz"});
  EXPECT_EQ(other.push("axy"), "a");
  EXPECT_EQ(other.flush(), "xy");
  EXPECT_EQ(other.match(), "");
}

// With what a browser may do for it; needs no key, as it asks for one itself.
TEST_F(ServiceTest, TheChatPageComesWithItsPolicy) {
  if (chat_page().empty()) GTEST_SKIP() << "built without the page (WIDEEP_PAGE=OFF)";
  finish();
  start({.model = "m", .api_key = "secret", .max_sequence = 64}, 1 << 20);
  const Reply page = ask("GET", "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.body, StartsWith("<!doctype html>"));
  EXPECT_THAT(page.head,
              HasSubstr("\r\nContent-Security-Policy: default-src 'none'; script-src 'sha"));
  EXPECT_THAT(page.head, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_EQ(ask("GET", "/?x=1").status, 200);
  EXPECT_EQ(ask("POST", "/").status, 405);
  EXPECT_EQ(ask("GET", "/nowhere").status, 404);  // "/" is no endpoint of what is below it
  EXPECT_THAT(ask("GET", "/metrics", "", "x-api-key: secret\r\n").body,
              HasSubstr("wideep_replies_total{path=\"/\",status=\"200\"} 2"));
}

TEST_F(ServiceTest, WithoutPagesThereAreNone) {
  finish();
  start({.model = "m", .max_sequence = 64, .has_pages = false}, 1 << 20);
  for (const char* path : {"/", "/dashboard", "/dashboard/data", "/dashboard/load"}) {
    EXPECT_EQ(ask("GET", path).status, 404) << path;
  }
  EXPECT_EQ(ask("GET", "/v1/models").status, 200);
}

// HEAD is as GET without the body; every 405 names the methods.
TEST_F(ServiceTest, MethodsOfEveryEndpoint) {
  for (const char* path : {"/health", "/v1/models", "/v1/models/m", "/metrics", "/dashboard",
                           "/dashboard/data", "/dashboard/load", "/perf_metrics", "/version"}) {
    SCOPED_TRACE(path);
    const Reply head = ask("HEAD", path);
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.body, "");
    EXPECT_EQ(head.head.find("Content-Length: 0"), head.head.npos);
    EXPECT_THAT(head.head, HasSubstr("\r\nContent-Length: "));
    for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "TRACE", "BREW"}) {
      const Reply other = ask(method, path);
      EXPECT_EQ(other.status, 405) << method;
      EXPECT_THAT(other.head, HasSubstr("\r\nAllow: GET, HEAD, OPTIONS\r\n"));
    }
  }
  for (const char* method : {"GET", "HEAD", "PUT"}) {
    const Reply other = ask(method, "/v1/completions");
    EXPECT_EQ(other.status, 405);
    EXPECT_THAT(other.head, HasSubstr("\r\nAllow: POST, OPTIONS\r\n"));
    EXPECT_EQ(other.body.empty(), std::string_view(method) == "HEAD");
  }
  EXPECT_EQ(ask("HEAD", "/nowhere").status, 404);
}

TEST_F(ServiceTest, OptionsNameTheMethods) {
  const Reply of_one = ask("OPTIONS", "/v1/chat/completions");
  EXPECT_EQ(of_one.status, 204);
  EXPECT_EQ(of_one.body, "");
  EXPECT_EQ(of_one.head.find("Content-Length"), of_one.head.npos);
  EXPECT_THAT(of_one.head, HasSubstr("\r\nAllow: POST, OPTIONS"));
  EXPECT_EQ(ask("OPTIONS", "*").status, 204);
  EXPECT_EQ(ask("OPTIONS", "/nowhere").status, 404);
}

// Bodies of clients without a key would fill the memory; they are not even asked for.
TEST_F(ServiceTest, WithoutTheKeyNoBodyIsRead) {
  finish();
  start({.model = "m", .api_key = "secret", .max_sequence = 64}, 1 << 20);
  for (const std::string& expects : {std::string(), std::string("Expect: 100-continue\r\n")}) {
    Socket client(server_->port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\n" + expects +
                "Content-Length: 1000000\r\n\r\n");
    const std::string reply = client.receive_all();
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 401"));
    EXPECT_THAT(reply, HasSubstr("\r\nConnection: close\r\n"));
  }
  EXPECT_THAT(ask("GET", "/metrics", "", "x-api-key: secret\r\n").body,
              HasSubstr("wideep_replies_total{path=\"/v1/completions\",status=\"401\"} 2"));
}

// Nor does a body come that no endpoint reads, whoever sends it, though it may be a short one.
TEST_F(ServiceTest, BodiesThatNobodyNeedsAreNotRead) {
  finish();
  start({.model = "m", .api_key = "secret", .max_sequence = 64}, 1 << 20);
  const struct {
    const char* request;
    int status;
  } all[] = {
      {"POST /nowhere", 404},
      {"OPTIONS /nowhere", 404},
      {"CONNECT h:80", 404},
      {"PUT /v1/models", 405},
      {"GET /v1/completions", 405},
      {"OPTIONS /v1/completions", 413},
      {"OPTIONS *", 413},
      {"GET /health", 413},
      {"HEAD /dashboard", 413},
      {"GET /v1/models", 413},
      {"POST /scale_elastic_ep", 413},
      {"POST /start_expert_distribution_record", 413},
  };
  const std::string key = "x-api-key: secret\r\n", sized = "Content-Length: 1000000\r\n\r\n";
  const std::string chunked = "Transfer-Encoding: chunked\r\n\r\nf4240\r\n";
  for (const auto& [request, status] : all) {
    for (const std::string& rest : {sized, "Expect: 100-continue\r\n" + sized, chunked}) {
      SCOPED_TRACE(request + (" " + rest));
      Socket client(server_->port());
      client.send(std::string(request) + " HTTP/1.1\r\nHost: h\r\n" + key + rest);
      const std::string reply = client.receive_all();
      EXPECT_THAT(reply, StartsWith("HTTP/1.1 " + std::to_string(status)));
      EXPECT_THAT(reply, HasSubstr("\r\nConnection: close\r\n"));
      EXPECT_EQ(reply.find("\r\nAllow: ") != reply.npos, status == 405);
    }
  }
  EXPECT_EQ(ask("GET", "/health", std::string(4096, 'x')).status, 200);
  EXPECT_EQ(ask("GET", "/health", std::string(4097, 'x')).status, 413);
  EXPECT_EQ(ask("OPTIONS", "/health", "{}").status, 204);
}

TEST_F(ServiceTest, WhatChangesTheServiceHasAKeyOfItsOwn) {
  const std::string client = "x-api-key: secret\r\n", admin = "Authorization: Bearer root\r\n";
  const auto status = [&](const std::string& path, const std::string& key) {
    return ask("POST", path, "{}", key).status;
  };
  const std::vector<std::string> changes = {
      "/scale_elastic_ep", "/start_expert_distribution_record", "/stop_expert_distribution_record",
      "/dump_expert_distribution_record", "/drain"};
  finish();
  start({.model = "m", .api_key = "secret", .admin_key = "root", .max_sequence = 64});
  for (const std::string& path : changes) {
    EXPECT_EQ(status(path, client), 401) << path;
    EXPECT_EQ(status(path, ""), 401) << path;
    EXPECT_NE(status(path, admin), 401) << path;
  }
  EXPECT_EQ(ask("GET", "/v1/models", "", client).status, 200);
  EXPECT_EQ(ask("GET", "/v1/models", "", admin).status, 200);
  finish();
  start({.model = "m", .admin_key = "root", .max_sequence = 64});  // clients need none
  for (const std::string& path : changes) {
    EXPECT_EQ(status(path, ""), 401) << path;
  }
  EXPECT_EQ(ask("GET", "/v1/models", "").status, 200);
  finish();
  start({.model = "m", .api_key = "secret", .max_sequence = 64});  // the same key
  for (const std::string& path : changes) {
    EXPECT_NE(status(path, client), 401) << path;
  }
}

TEST_F(ServiceTest, DrainingRefusesTextUntilItIsTakenBack) {
  std::vector<bool> told;
  on_server([&] {
    service_->connect_draining([&](bool now) { told.push_back(now); });
    return true;
  });
  const json body = {{"model", "m"}, {"prompt", "Count."}, {"max_tokens", 3}};
  for (const char* on : {"", "{}", R"({"drain": true})"}) {
    const Reply drained = ask("POST", "/drain", on);
    EXPECT_EQ(drained.status, 200) << on;
    EXPECT_EQ(drained.body_json(), json({{"status", "draining"}, {"running", 0}}));
    const Reply health = ask("GET", "/health");
    EXPECT_EQ(health.status, 503);
    EXPECT_THAT(health.head, HasSubstr("Retry-After: 1"));
    EXPECT_EQ(health.body_json(), json({{"status", "draining"}, {"running", 0}}));
    const Reply refused = complete(body);
    EXPECT_EQ(refused.status, 503);
    EXPECT_THAT(refused.head, HasSubstr("Retry-After: 1"));
    EXPECT_EQ(refused.body_json()["error"]["code"], "draining");
    EXPECT_EQ(ask("GET", "/v1/models").status, 200);
    EXPECT_THAT(ask("GET", "/metrics").body, HasSubstr("\nwideep_draining 1\n"));
    const bool by_body = std::string(on).empty();
    const Reply back =
        by_body ? ask("POST", "/drain", R"({"drain": false})") : ask("DELETE", "/drain");
    EXPECT_EQ(back.body_json(), json({{"status", "ok"}, {"running", 0}}));
    EXPECT_EQ(ask("GET", "/health").status, 200);
    EXPECT_EQ(complete(body).status, 200);
    EXPECT_THAT(ask("GET", "/metrics").body, HasSubstr("\nwideep_draining 0\n"));
  }
  EXPECT_THAT(told, testing::ElementsAre(true, false, true, false, true, false));
  for (const char* wrong : {"1", "[]", R"({"drain": 1})", R"({"on": true})", "{"}) {
    EXPECT_EQ(ask("POST", "/drain", wrong).status, 400) << wrong;
  }
  EXPECT_EQ(told.size(), 6U);
  on_server([&] {
    service_->drain();
    return true;
  });
  EXPECT_EQ(ask("DELETE", "/drain").status, 409);
  EXPECT_EQ(ask("GET", "/health").body_json()["status"], "draining");
}

TEST_F(ServiceTest, TheTextOfTokensIsBounded) {
  finish();
  start({.model = "m", .vocab_size = static_cast<int>(tokenizer_.vocab_size()), .max_sequence = 64},
        size_t{8} << 20);
  int longest = 0;
  for (int id = 0; id < static_cast<int>(tokenizer_.vocab_size()); ++id) {
    const bool is_longer = tokenizer_.decode(std::vector<int32_t>{id}, false).size() >
                           tokenizer_.decode(std::vector<int32_t>{longest}, false).size();
    if (is_longer) longest = id;
  }
  const size_t bytes = tokenizer_.decode(std::vector<int32_t>{longest}, false).size();
  const json many = {{"tokens", std::vector<int>((size_t{8} << 20) / bytes + 1000, longest)}};
  const Reply refused = ask("POST", "/detokenize", many.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("ask for less at once"));
}

TEST_F(ServiceTest, TheTokensOfATextAreBounded) {
  finish();
  start({.model = "m", .max_sequence = 1 << 22}, size_t{8} << 20);
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += " 1";
  const Reply refused =
      ask("POST", "/tokenize", json{{"prompt", text}, {"return_token_strs", true}}.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("ask for less at once"));
  EXPECT_EQ(ask("POST", "/tokenize", json{{"prompt", text.substr(0, 100'000)}}.dump()).status, 200);
  finish();
  start({.model = "m", .max_sequence = 64}, size_t{8} << 20);
  const Reply too_long = ask("POST", "/tokenize", json{{"prompt", text}}.dump());
  EXPECT_EQ(too_long.status, 400);
  EXPECT_THAT(too_long.body, HasSubstr("maximum context length"));
}

// Of all answers of a reply together: none is sent before all have ended.
TEST_F(ServiceTest, LogProbabilitiesOfAReplyAreBounded) {
  finish();
  start({.model = "m",
         .vocab_size = static_cast<int>(tokenizer_.vocab_size()),
         .max_sequence = 1 << 20},
        size_t{8} << 20);
  const std::vector<int32_t> prompt(5'000, 7);
  const std::pair<json, const char*> kMistakes[] = {
      {{{"prompt", "x"}, {"max_tokens", 50'000}, {"logprobs", 5}, {"n", 2}}, "logprobs"},
      {{{"prompt", prompt}, {"max_tokens", 1}, {"prompt_logprobs", 20}, {"n", 8}},
       "prompt_logprobs"},
      {{{"prompt", prompt}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 5}, {"n", 32}}, "echo"},
      {{{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
        {"max_tokens", 30'000},
        {"logprobs", true},
        {"top_logprobs", 20}},
       "top_logprobs"}};
  for (const auto& [members, param] : kMistakes) {
    json body = {{"model", "m"}};
    body.update(members);
    const Reply refused = body.contains("messages") ? chat(body) : complete(body);
    EXPECT_EQ(refused.status, 400) << param;
    EXPECT_EQ(refused.body_json()["error"]["param"], param);
    EXPECT_THAT(refused.body, HasSubstr("at most 524288 may be asked for")) << param;
  }
  json body = {{"model", "m"}, {"prompt", "x"}, {"max_tokens", 40'000}, {"logprobs", 5}, {"n", 2}};
  EXPECT_EQ(complete(body).status, 200);
  body["max_tokens"] = 50'000;
  body["stream"] = true;
  EXPECT_EQ(complete(body).status, 200);
  // Those who say no length get what there is room for, and are told.
  const Reply clipped =
      complete({{"model", "m"}, {"prompt", "x"}, {"max_tokens", -1}, {"logprobs", 0}});
  EXPECT_EQ(clipped.status, 200);
  EXPECT_EQ(clipped.body_json()["usage"]["clipped_max_tokens"], 524'288);
  const Reply answered = chat({{"model", "m"},
                               {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                               {"logprobs", true},
                               {"top_logprobs", 20}});
  EXPECT_EQ(answered.status, 200) << answered.body;
}

// Without --cors-origin no reply lets a page of another origin read it.
TEST_F(ServiceTest, OriginsAreAllowedOnlyWhenTheyAreSet) {
  const std::string origin = "Origin: https://a.example\r\n";
  const std::string asks = origin +
                           "Access-Control-Request-Method: POST\r\n"
                           "Access-Control-Request-Headers: authorization, x-a\r\n";
  EXPECT_EQ(ask("GET", "/health", "", origin).head.find("Access-Control"), std::string::npos);
  EXPECT_EQ(ask("OPTIONS", "/health", "", asks).head.find("Access-Control"), std::string::npos);
  finish();
  start({.model = "m", .api_key = "key", .max_sequence = 64}, 4096,
        {"https://a.example", "http://localhost:3000"});
  const std::string allowed = "\r\nAccess-Control-Allow-Origin: https://a.example\r\n";
  for (const char* path : {"/health", "/v1/models", "/nowhere"}) {  // 200, 401, 404
    EXPECT_THAT(ask("GET", path, "", origin).head, HasSubstr(allowed));
  }
  const Reply too_large = ask("POST", "/v1/completions", std::string(5000, 'x'), origin);
  EXPECT_EQ(too_large.status, 413);
  EXPECT_THAT(too_large.head, HasSubstr(allowed));
  const Reply question = ask("OPTIONS", "/v1/completions", "", asks);
  EXPECT_EQ(question.status, 204);  // a browser's question has no key
  EXPECT_THAT(question.head, HasSubstr(allowed));
  EXPECT_THAT(question.head, HasSubstr("\r\nAccess-Control-Allow-Methods: POST, OPTIONS\r\n"));
  EXPECT_THAT(question.head, HasSubstr("\r\nAccess-Control-Allow-Headers: authorization, x-a\r\n"));
  for (const char* other : {"Origin: https://b.example\r\n", "Origin: null\r\n", ""}) {
    const Reply reply = ask("GET", "/health", "", other);
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.head.find("Access-Control"), std::string::npos) << reply.head;
    EXPECT_THAT(reply.head, HasSubstr("\r\nVary: Origin"));
  }
  finish();
  start({.model = "m", .max_sequence = 64}, 4096, {"*"});
  EXPECT_THAT(ask("GET", "/health", "", origin).head,
              HasSubstr("\r\nAccess-Control-Allow-Origin: *\r\n"));
}

// Where and why.
TEST_F(ServiceTest, BodiesThatAreNoJsonAreExplained) {
  const std::string start = "{\"model\":\"m\",\"prompt\":";
  const struct {
    std::string body;
    const char* message;
  } all[] = {
      {start + "\"a\\ud83d b\"}",
       "body:1:31: not valid JSON: syntax error while parsing value - invalid string: surrogate"},
      {start + "\"a\\udc00\"}",
       "body:1:30: not valid JSON: syntax error while parsing value - invalid string: surrogate"},
      {start + "\"a\xff\"}",
       "body:1:25: not valid JSON: syntax error while parsing value - invalid string: ill-formed"},
      {start + "\"a\xed\xa0\x80\"}",
       "body:1:26: not valid JSON: syntax error while parsing value - invalid string: ill-formed"},
      {start + "\"a\nb\"}",
       "body:1:25: not valid JSON: syntax error while parsing value - invalid string: control"},
      {start + "NaN}",
       "body:1:23: not valid JSON: syntax error while parsing value - invalid literal"},
      {start + "\n Infinity}",
       "body:2:2: not valid JSON: syntax error while parsing value - invalid literal"},
      {start + "1,}", "not valid JSON"},
      {start + "'a'}", "parsing value - invalid literal"},
      {start + "1e999}", "number overflow"},
      {start + "\"x\"} {}",
       "body:1:28: not valid JSON: syntax error while parsing value - unexpected '{'"},
      {start + std::string("\"x\0\"}", 5), "not valid JSON: a zero byte"},
      {start + "\"x\",\"prompt\":\"y\"}", "key 'prompt' appears twice"},
      {start + "\"x\",\"metadata\":[{\"a\":1,\"a\":1}]}", "key 'a' appears twice"},
      {"\x1f\x8b\x08", "the body is compressed: expected plain JSON"},
      {"", "not valid JSON"},
  };
  for (const auto& each : all) {
    const Reply reply = ask("POST", "/v1/completions", each.body);
    EXPECT_EQ(reply.status, 400) << each.body;
    EXPECT_THAT(reply.body_json()["error"]["message"].get<std::string>(), HasSubstr(each.message));
  }
  const Reply compressed =
      ask("POST", "/v1/completions", start + "\"x\"}", "Content-Encoding: gzip\r\n");
  EXPECT_EQ(compressed.status, 400);
  EXPECT_THAT(compressed.body, HasSubstr("Content-Encoding: expected none, found 'gzip'"));
}

// ---- what the answer has to be ----

// The text of a grammar that the engine got, matched byte by byte.
bool takes(const engine::SharedGrammar& bytes, std::string_view text) {
  return bytes != nullptr &&
         grammar::match(grammar::Grammar::decode(*bytes), text) == grammar::Match::kWhole;
}

TEST_F(ServiceTest, FormatsBecomeGrammars) {
  const auto grammar_of = [&](const json& more) {
    json body = {
        {"model", "m"}, {"max_tokens", 2}, {"messages", {{{"role", "user"}, {"content", "a"}}}}};
    body.update(more);
    const Reply reply = ask("POST", "/v1/chat/completions", body.dump());
    EXPECT_EQ(reply.status, 200) << reply.body;
    return std::exchange(backend_.last_request.grammar, nullptr);
  };
  const json schema = {
      {"type", "object"}, {"properties", {{"a", {{"type", "integer"}}}}}, {"required", {"a"}}};
  EXPECT_EQ(grammar_of({{"response_format", {{"type", "text"}}}}), nullptr);
  EXPECT_TRUE(takes(grammar_of({{"response_format", {{"type", "json_object"}}}}), R"({"x": [1]})"));
  for (const json& more :
       {json{{"response_format",
              {{"type", "json_schema"},
               {"json_schema", {{"name", "n"}, {"strict", true}, {"schema", schema}}}}}},
        json{{"response_format", {{"type", "json_object"}, {"schema", schema}}}},
        json{{"guided_json", schema}}, json{{"guided_json", schema.dump()}},
        json{{"structured_outputs", {{"json", schema}}}}}) {
    const auto grammar = grammar_of(more);
    EXPECT_TRUE(takes(grammar, R"({"a": 1})")) << more;
    EXPECT_TRUE(takes(grammar, R"({"a":1})")) << more;
    EXPECT_FALSE(takes(grammar, R"({"a": "1"})")) << more;
  }
  const auto compact =
      grammar_of({{"structured_outputs", {{"json", schema}, {"disable_any_whitespace", true}}}});
  EXPECT_TRUE(takes(compact, R"({"a":1})"));
  EXPECT_FALSE(takes(compact, R"({"a": 1})"));
  // The format may be OpenAI's, and the whitespace vLLM's.
  const auto both = grammar_of({{"response_format", {{"type", "json_object"}, {"schema", schema}}},
                                {"structured_outputs", {{"disable_any_whitespace", true}}}});
  EXPECT_TRUE(takes(both, R"({"a":1})"));
  EXPECT_FALSE(takes(both, R"({"a": 1})"));
  EXPECT_TRUE(takes(grammar_of({{"guided_json", schema}, {"guided_whitespace_pattern", " {3}"}}),
                    "{   \"a\":   1   }"));
  EXPECT_TRUE(takes(grammar_of({{"structured_outputs",
                                 {{"json", schema}, {"disable_additional_properties", false}}}}),
                    R"({"a": 1, "b": 2})"));
  EXPECT_TRUE(takes(grammar_of({{"guided_regex", "[ab]+"}}), "abba"));
  EXPECT_TRUE(takes(grammar_of({{"guided_choice", {"x", "yes"}}}), "yes"));
  EXPECT_TRUE(takes(grammar_of({{"guided_grammar", "root ::= \"a\" root?"}}), "aaa"));
  EXPECT_TRUE(
      takes(grammar_of({{"structured_outputs", {{"choice", {"x"}}, {"json", nullptr}}}}), "x"));
}

// All answers to all prompts share it.
TEST_F(ServiceTest, FormatsOfCompletionsWithSeveralAnswers) {
  const Reply reply = ask("POST", "/v1/completions",
                          json{{"model", "m"},
                               {"prompt", {"a", "b"}},
                               {"n", 2},
                               {"max_tokens", 2},
                               {"guided_choice", {"x", "yes"}}}
                              .dump());
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_TRUE(takes(backend_.last_request.grammar, "x"));
}

TEST_F(ServiceTest, FormatsThatCannotBeAreRefusedWithThePlace) {
  const auto error_of = [&](const json& more) {
    json body = {{"model", "m"}, {"prompt", "a"}};
    body.update(more);
    const Reply reply = ask("POST", "/v1/completions", body.dump());
    EXPECT_EQ(reply.status, 400) << reply.body;
    const json error = json::parse(reply.body)["error"];
    return fmt::format("{} ({})", error["message"].get<std::string>(),
                       error["param"].get<std::string>());
  };
  const auto format_of = [](const json& schema) {
    return json{{"response_format",
                 {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}}}};
  };
  EXPECT_EQ(
      error_of(format_of({{"properties", {{"a/b", {{"not", json::object()}}}}}})),
      "response_format.json_schema.schema: #/properties/a~1b/not: this keyword is not supported "
      "(response_format.json_schema.schema)");
  EXPECT_EQ(error_of(format_of({{"type", "integer"}, {"minimum", 2}, {"maximum", 1}})),
            "response_format.json_schema.schema: rule '#': no text matches it "
            "(response_format.json_schema.schema)");
  EXPECT_EQ(error_of({{"response_format", {{"type", "xml"}}}}),
            "response_format.type: expected \"text\", \"json_object\" or \"json_schema\", found "
            "\"xml\" (response_format.type)");
  EXPECT_EQ(error_of({{"response_format", {{"type", "json_schema"}}}}),
            "response_format.json_schema: expected an object with a schema "
            "(response_format.json_schema)");
  EXPECT_EQ(error_of({{"guided_regex", "a("}}),
            "guided_regex: at byte 2: expected ) (guided_regex)");
  EXPECT_EQ(error_of({{"guided_regex", "a"}, {"guided_choice", {"b"}}}),
            "guided_choice: beside guided_regex: expected one of them (guided_choice)");
  EXPECT_EQ(error_of({{"guided_choice", json::array()}}),
            "guided_choice: expected a list of 1 to 10000 strings (guided_choice)");
  EXPECT_EQ(error_of({{"guided_grammar", "root ::= root \"a\" | \"b\""}}),
            "guided_grammar: rule 'root' begins with itself (left recursion); write it as a "
            "repetition (guided_grammar)");
  EXPECT_EQ(error_of({{"structured_outputs", {{"structural_tag", "x"}}}}),
            "structured_outputs.structural_tag: this field is not known "
            "(structured_outputs.structural_tag)");
  EXPECT_EQ(error_of({{"guided_json", "{\"a\""}}).substr(0, 18), "guided_json: text:");
  for (const std::string name : {"disable_any_whitespace", "disable_additional_properties"}) {
    EXPECT_EQ(error_of({{"structured_outputs", {{"json", json::object()}, {name, "yes"}}}}),
              "structured_outputs." + name + ": expected true or false, found \"yes\" " +
                  "(structured_outputs." + name + ")");
  }
}

TEST_F(ServiceTest, OptionsOfFormatsNeedAFormat) {
  const auto error_of = [&](const json& more) {
    json body = {{"model", "m"}, {"prompt", "a"}};
    body.update(more);
    const Reply reply = ask("POST", "/v1/completions", body.dump());
    EXPECT_EQ(reply.status, 400) << reply.body;
    return json::parse(reply.body)["error"]["message"].get<std::string>();
  };
  for (const json& options :
       {json::object(), json{{"whitespace_pattern", " ?"}}, json{{"disable_any_whitespace", true}},
        json{{"disable_additional_properties", false}}, json{{"json", nullptr}},
        json{{"json_object", false}}}) {
    EXPECT_EQ(
        error_of({{"structured_outputs", options}}),
        "structured_outputs: expected one of json, regex, choice, grammar, json_object (true) "
        "in it: without a format its other members have no effect");
  }
  EXPECT_EQ(error_of({{"guided_whitespace_pattern", " ?"}}),
            "guided_whitespace_pattern: has no effect without a format: expected guided_json or "
            "guided_json_object or response_format beside it");
  // A mistake in the format is the first complaint.
  EXPECT_EQ(error_of({{"structured_outputs", {{"regex", 5}}}}),
            "structured_outputs.regex: expected a string");
}

TEST_F(ServiceTest, FormatsNeedAnEndToken) {
  finish();
  start({.model = "m", .has_end_tokens = false, .max_sequence = 64, .max_queue = 8});
  const Reply reply = ask("POST", "/v1/completions",
                          json{{"model", "m"}, {"prompt", "a"}, {"guided_regex", "a"}}.dump());
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("guided_regex: the model has no end token"));
}

TEST_F(ServiceTest, NullIsNotGiven) {
  json body = {{"model", "m"}, {"max_tokens", 2}};
  for (const char* name : {"audio",
                           "frequency_penalty",
                           "function_call",
                           "functions",
                           "logit_bias",
                           "logprobs",
                           "max_completion_tokens",
                           "metadata",
                           "modalities",
                           "n",
                           "parallel_tool_calls",
                           "prediction",
                           "presence_penalty",
                           "prompt_cache_key",
                           "prompt_cache_retention",
                           "reasoning_effort",
                           "response_format",
                           "safety_identifier",
                           "seed",
                           "service_tier",
                           "stop",
                           "store",
                           "stream",
                           "stream_options",
                           "temperature",
                           "tool_choice",
                           "tools",
                           "top_logprobs",
                           "top_p",
                           "user",
                           "verbosity",
                           "web_search_options"}) {
    body[name] = nullptr;
  }
  body["messages"] = {{{"role", "user"}, {"content", "a"}, {"name", nullptr}},
                      {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", nullptr}},
                      {{"role", "user"}, {"content", "b"}}};
  const Reply reply = chat(body);
  EXPECT_EQ(reply.status, 200) << reply.body;
  json completion = {{"model", "m"}, {"prompt", "x"}};
  for (const char* name : {"best_of", "echo", "frequency_penalty", "logit_bias", "logprobs",
                           "max_tokens", "n", "presence_penalty", "seed", "stop", "stream",
                           "stream_options", "suffix", "temperature", "top_p", "user"}) {
    completion[name] = nullptr;
  }
  EXPECT_EQ(complete(completion).status, 200);
  body["functions"] = json::array();
  EXPECT_THAT(chat(body).body, HasSubstr("functions: is not supported"));
}

TEST_F(ServiceTest, FieldsWithoutEffectAreNamedOnce) {
  const auto lines_after = [&](const json& more) {
    json body = {{"model", "m"}, {"prompt", "x"}};
    body.update(more);
    testing::internal::CaptureStderr();
    EXPECT_EQ(complete(body).status, 200);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(lines_after({{"service_tier", nullptr}, {"top_p", 0.5}}), "");
  EXPECT_THAT(lines_after({{"service_tier", "auto"}}),
              MatchesRegex("http: a request has service_tier, which has no effect here; this is "
                           "said once request_id=[0-9a-f]+\n"));
  EXPECT_EQ(lines_after({{"service_tier", "flex"}}), "");
  EXPECT_THAT(lines_after({{"user", "u"}, {"service_tier", "flex"}}), HasSubstr("user, which"));
}

TEST_F(ServiceTest, ObfuscationHasNoEffect) {
  for (const json& value : {json(true), json(false), json()}) {
    const Reply reply =
        complete({{"model", "m"},
                  {"prompt", "x"},
                  {"stream", true},
                  {"stream_options", {{"include_usage", true}, {"include_obfuscation", value}}}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_FALSE(reply.events().back()["usage"].is_null());
  }
}

TEST_F(ServiceTest, MessagesThatSayNothingAreRefused) {
  const auto complaint = [&](const json& message) {
    const Reply reply =
        chat({{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "x"}}, message}}});
    EXPECT_EQ(reply.status, 400);
    return reply.body_json()["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(complaint({{"role", "alien"}, {"content", "x"}}),
            "messages: messages[1]: role: expected system, developer, user, assistant, tool, "
            "function, found \"alien\"");
  for (const char* role : {"user", "system", "developer", "tool"}) {
    const std::string expected =
        std::string("messages: messages[1]: a message of role ") + role + " needs content";
    EXPECT_EQ(complaint({{"role", role}}), expected);
    EXPECT_EQ(complaint({{"role", role}, {"content", nullptr}}), expected);
  }
  EXPECT_THAT(complaint({{"role", "user"}, {"content", 5}}), HasSubstr("content: expected"));
  EXPECT_THAT(complaint("x"), HasSubstr("messages[1]: expected an object with a role"));
}

TEST_F(ServiceTest, StopStringsAreBounded) {
  finish();
  start({.model = "m", .max_sequence = 64}, size_t{8} << 20);
  const auto with = [&](const json& stop) {
    return complete({{"model", "m"}, {"prompt", "x"}, {"stop", stop}});
  };
  EXPECT_EQ(with(std::string(1024, 's')).status, 200);
  EXPECT_THAT(with(std::string(1025, 's')).body, HasSubstr("stop: expected strings of at most"));
  EXPECT_THAT(with(json::array({"a", std::string(500'000, 's')})).body, HasSubstr("found 500000"));
  EXPECT_THAT(with(json(std::vector<std::string>(17, "s"))).body, HasSubstr("at most 16 strings"));
}

// The serving thread computes little for a long request, and never long at a time, so running
// streams go on. Times of the thread's own processor: this test may share its cores.
TEST_F(ServiceTest, LongRequestsDelayNobody) {
  finish();
  // Sanitizers make the same work many times slower.
  const size_t length = base::kSanitized ? size_t{512} << 10 : size_t{4} << 20;
  start({.model = "m", .max_sequence = static_cast<int>(length / 4), .max_queue = 200},
        size_t{8} << 20);
  const auto longest_ns = std::make_shared<std::atomic<int64_t>>(0);
  on_server([&] {
    server_->call_every(1, [longest_ns, last_ns = base::thread_cpu_ns()]() mutable {
      const int64_t now = base::thread_cpu_ns();
      *longest_ns = std::max<int64_t>(*longest_ns, now - std::exchange(last_ns, now));
    });
    return true;
  });
  std::string text;
  while (text.size() < length) text += "Some words, and then 12 more of them. ";
  const json long_message = {{{"role", "user"}, {"content", text}}};
  const std::vector<json> stops(16, std::string(400'000, 's'));
  const std::pair<const char*, json> all[] = {
      {"/v1/completions", {{"model", "m"}, {"prompt", text}}},
      {"/v1/completions", {{"model", "m"}, {"prompt", std::vector<int>(length / 5, -1)}}},
      {"/v1/completions", {{"model", "m"}, {"prompt", "x"}, {"stop", stops}}},
      {"/v1/chat/completions", {{"model", "m"}, {"messages", long_message}}},
  };
  for (const auto& [path, body] : all) {
    const std::string text_of_body = body.dump();
    *longest_ns = 0;
    const int64_t before = process_cpu_ns();
    EXPECT_EQ(ask("POST", path, text_of_body).status, 400);
    const int64_t all_ns = process_cpu_ns() - before;
    EXPECT_LT(longest_ns->load() * 4, all_ns);
  }
}

// 128 copies of a long prompt would take the serving thread tens of milliseconds.
TEST_F(ServiceTest, TheAnswersToAPromptShareItsTokens) {
  complete({{"model", "m"}, {"prompt", {"One.", "Two."}}, {"n", 3}, {"max_tokens", 1}});
  ASSERT_EQ(backend_.prompts.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(backend_.prompts[i].ids(), tokenizer_.encode(i < 3 ? "One." : "Two."));
    EXPECT_EQ(backend_.prompts[i].is_copy_of(backend_.prompts[0]), i < 3);
  }
  EXPECT_TRUE(backend_.prompts[5].is_copy_of(backend_.prompts[3]));
}

// A drain waits for what is being prepared; who has left is not answered.
TEST_F(ServiceTest, RequestsInPreparationCountAsRunning) {
  finish();
  start({.model = "m", .max_sequence = 1 << 20, .max_queue = 8}, size_t{8} << 20);
  const std::string text(200'000, 'x');
  const std::string body = json({{"model", "m"}, {"prompt", text}, {"max_tokens", 2}}).dump();
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\n\r\n" + body;
  {
    Socket leaves(server_->port());
    leaves.send(request);
  }
  Socket stays(server_->port());
  stays.send(request);
  EXPECT_THAT(stays.receive(), StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(on_server([&] { return service_->idle(); }));
}

// Certainly too long: refused before it is tokenised. White space may be swallowed, so it may not.
TEST_F(ServiceTest, TextsThatCannotFitAreRefusedByTheirLength) {
  finish();
  start({.model = "m", .max_sequence = 64}, size_t{8} << 20);
  const auto complaint = [&](const std::string& text) {
    return complete({{"model", "m"}, {"prompt", text}}).body;
  };
  EXPECT_THAT(
      complaint(std::string(1 << 20, 'x')),
      HasSubstr("prompt: This model's maximum context length is 64 tokens, and 1048576 bytes "
                "of text are longer"));
  EXPECT_THAT(complaint(std::string(1 << 18, ' ')), HasSubstr("tokens of the prompt"));
  EXPECT_THAT(complaint(std::string(100, 'x')), testing::Not(HasSubstr("bytes of text")));
  EXPECT_THAT(chat({{"model", "m"},
                    {"messages", {{{"role", "user"}, {"content", std::string(1 << 20, 'x')}}}}})
                  .body,
              HasSubstr("tokens, and 1048"));
}

TEST_F(ServiceTest, WhatChangesLogitsGoesToTheRanks) {
  const Reply reply = complete({{"model", "m"},
                                {"prompt", "x"},
                                {"min_p", 0.25},
                                {"presence_penalty", -1},
                                {"frequency_penalty", 0.5},
                                {"repetition_penalty", 1.5},
                                {"logit_bias", {{"7", -100}}}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  const engine::Request& request = backend_.last_request;
  EXPECT_EQ(request.sampling.min_p, 0.25f);
  EXPECT_EQ(request.sampling.presence_penalty, -1.0f);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5f);
  ASSERT_EQ(request.bias.size(), 1u);
  EXPECT_EQ(request.bias[0].token, 7);
  EXPECT_EQ(request.bias[0].bias, -100.0f);
}

TEST_F(ServiceTest, TextsBecomeTokensAndBack) {
  const std::string text = "One two three";
  const json tokens = tokenizer_.encode(text);
  const json reply =
      ask("POST", "/tokenize", json{{"prompt", text}, {"return_token_strs", true}}.dump())
          .body_json();
  EXPECT_EQ(reply["tokens"], tokens);
  EXPECT_EQ(reply["count"], tokens.size());
  EXPECT_EQ(reply["max_model_len"], 64);
  EXPECT_EQ(reply["token_strs"].size(), tokens.size());
  const json chat = {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  EXPECT_EQ(ask("POST", "/tokenize", chat.dump()).body_json()["tokens"],
            json(tokenizer_.encode("<s>[user] Hi", false)));
  EXPECT_EQ(ask("POST", "/detokenize", json{{"tokens", tokens}}.dump()).body_json(),
            (json{{"prompt", "<｜begin▁of▁sentence｜>" + text}}));
  // The first tokens of prompts that clients make themselves.
  const json info = ask("GET", "/tokenizer_info").body_json();
  EXPECT_EQ(info["max_model_len"], 64);
  EXPECT_EQ(info["bos_token"], "<s>");
  EXPECT_TRUE(info.contains("eos_token"));
  EXPECT_THAT(info["chat_template"].get<std::string>(), HasSubstr("{% for"));
  EXPECT_EQ(ask("POST", "/tokenizer_info", "{}").status, 405);
  const auto complaint = [&](const char* path, const json& body) {
    const Reply refused = ask("POST", path, body.dump());
    EXPECT_GE(refused.status, 400);
    return refused.body_json()["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(complaint("/tokenize", json::object()), "prompt: expected a text, or messages");
  EXPECT_EQ(complaint("/tokenize", {{"prompt", "x"}, {"stream", true}}),
            "stream: this field is not known");
  EXPECT_EQ(complaint("/detokenize", {{"tokens", {1, "x"}}}),
            "tokens: expected a list of token ids");
  EXPECT_THAT(complaint("/detokenize", {{"tokens", {1 << 30}}}), HasSubstr("has no token"));
  EXPECT_THAT(complaint("/detokenize", {{"model", "x"}, {"tokens", {1}}}),
              HasSubstr("expected 'm'"));
  // On the work thread.
  const std::string large(10'000, 'x');
  finish();
  start({.model = "m", .max_sequence = 64}, size_t{8} << 20);
  EXPECT_EQ(ask("POST", "/tokenize", json{{"prompt", large}}.dump()).body_json()["tokens"],
            json(tokenizer_.encode(large)));
}

// A state is kept before what a later prompt may have otherwise.
TEST_F(ServiceTest, TheEngineIsToldWhereTheLastMessageBegins) {
  finish();
  start({.model = "m", .max_sequence = 512, .max_queue = 8, .keeps_states = true});
  const auto message = [](const char* role, const std::string& content) {
    return json{{"role", role}, {"content", content}};
  };
  // Where the prompt that ends with `last` begins to differ from that with another text there.
  const auto begin_of = [&](const std::vector<json>& before, const json& last) {
    json messages = before;
    messages.push_back(last);
    EXPECT_EQ(chat({{"model", "m"}, {"messages", messages}}).status, 200);
    return backend_.last_request.turn_begin;
  };
  const auto tokens = [&](const std::string& text) {
    return static_cast<int>(tokenizer_.encode(text, false).size());
  };
  const json first = message("user", "What is it?"), answer = message("assistant", "It is.");
  EXPECT_EQ(begin_of({}, first), tokens("<s>[user]"));
  EXPECT_EQ(begin_of({first, answer}, message("user", "And now?")),
            tokens("<s>[user] What is it?[assistant] It is.[user]"));
  EXPECT_EQ(begin_of({first}, message("user", "- And now?")),
            tokens("<s>[user] What is it?[user]"));
  // Of calls, and of what is no chat.
  const json calls = {
      {"role", "assistant"},
      {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", json::object()}}}}}}};
  EXPECT_EQ(begin_of({first}, calls), 0);
  EXPECT_EQ(complete({{"model", "m"}, {"prompt", "x"}}).status, 200);
  EXPECT_EQ(backend_.last_request.turn_begin, 0);
  // The other APIs' chats.
  const json last = json::array({first});
  ask("POST", "/v1/responses", json{{"model", "m"}, {"input", "What is it?"}}.dump());
  EXPECT_EQ(backend_.last_request.turn_begin, tokens("<s>[user]"));
  ask("POST", "/v1/messages", json{{"model", "m"}, {"max_tokens", 4}, {"messages", last}}.dump());
  EXPECT_EQ(backend_.last_request.turn_begin, tokens("<s>[user]"));
  // Nobody wants to know.
  finish();
  start({.model = "m", .max_sequence = 512, .max_queue = 8});
  EXPECT_EQ(begin_of({}, first), 0);
}

// ---- calls of tools and reasoning ----

// What the client puts together of a stream's deltas; the same as the message of a whole reply.
json message_of(const std::vector<json>& events) {
  json message = {{"content", ""}, {"tool_calls", json::array()}};
  for (const json& event : events) {
    if (event["choices"].empty()) continue;
    const json& delta = event["choices"][0]["delta"];
    for (const char* name : {"content", "reasoning_content", "reasoning"}) {
      if (!delta.contains(name) || delta[name].is_null()) continue;
      message[name] = message.value(name, "") + delta[name].get<std::string>();
    }
    for (const json& part : delta.value("tool_calls", json::array())) {
      json& calls = message["tool_calls"];
      const size_t index = part["index"];
      if (part.contains("id")) {
        EXPECT_EQ(index, calls.size());
        calls.push_back({{"id", part["id"]},
                         {"type", part["type"]},
                         {"function", {{"name", part["function"]["name"]}, {"arguments", ""}}}});
      }
      json& arguments = calls.at(index)["function"]["arguments"];
      arguments = arguments.get<std::string>() + part["function"]["arguments"].get<std::string>();
    }
  }
  return message;
}

class CallServiceTest : public ServiceTest {
 protected:
  static constexpr const char* kAnswer =
      "<think>\nHm, so.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"find\", \"arguments\": "
      "{\"what\": \"a \\\"b\\\"\", \"n\": 3}}\n</tool_call>\n<tool_call>\n{\"name\": \"stop\", "
      "\"arguments\": {}}\n</tool_call>";

  CallServiceTest() : CallServiceTest(kAnswer) {}
  explicit CallServiceTest(const std::string& answer)
      : ServiceTest(tokenizer::Tokenizer::read(WIDEEP_SOURCE_DIR "/models/reference").value(),
                    answer) {
    finish();
    start({.model = "m", .max_sequence = 2048, .max_queue = 8}, size_t{8} << 20);
  }

  static json tool(const std::string& name) {
    return {{"type", "function"}, {"function", {{"name", name}}}};
  }
  static json request() {
    return {{"model", "m"},
            {"chat_template", "qwen"},
            {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
            {"tools", {tool("find"), tool("stop")}}};
  }
  std::string prompt() { return tokenizer_.decode(backend_.last_request.prompt.ids()); }
};

TEST_F(CallServiceTest, CallsAndReasoningHaveFields) {
  const json choice = chat(request()).body_json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const json& message = choice["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm, so.");
  EXPECT_EQ(message["reasoning"], "Hm, so.");
  EXPECT_EQ(message["content"], "I look.");
  const json& calls = message["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"]["name"], "find");
  EXPECT_EQ(calls[0]["function"]["arguments"], R"({"what": "a \"b\"", "n": 3})");
  EXPECT_EQ(calls[1]["function"]["name"], "stop");
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
  EXPECT_THAT(calls[0]["id"].get<std::string>(), StartsWith("call_"));
}

TEST_F(CallServiceTest, StreamsAreTheSameInParts) {
  const json whole = chat(request()).body_json()["choices"][0]["message"];
  json body = request();
  body["stream"] = true;
  const std::vector<json> events = chat(body).events();
  json streamed = message_of(events);
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_GT(events.size(), 20u);
  for (const char* name : {"content", "reasoning_content", "reasoning"}) {
    EXPECT_EQ(streamed[name], whole[name]);
  }
  ASSERT_EQ(streamed["tool_calls"].size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(streamed["tool_calls"][i]["function"], whole["tool_calls"][i]["function"]);
  }
}

TEST_F(CallServiceTest, StreamsOfLongIntervalsAreTheSame) {
  const json whole = chat(request()).body_json()["choices"][0]["message"];
  for (const int interval : {2, 7, 1000}) {
    finish();
    start({.model = "m", .max_sequence = 2048, .max_queue = 8, .stream_interval = interval},
          size_t{8} << 20);
    backend_.per_step = 1 + interval % 3;
    json body = request();
    body["stream"] = true;
    const json streamed = message_of(chat(body).events());
    for (const char* name : {"content", "reasoning_content", "reasoning"}) {
      EXPECT_EQ(streamed[name], whole[name]) << interval;
    }
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(streamed["tool_calls"][i]["function"], whole["tool_calls"][i]["function"]);
    }
  }
}

TEST_F(CallServiceTest, StreamsGoOnAtAnotherServer) {
  expect_resumes("/v1/chat/completions", request());
}

TEST_F(CallServiceTest, OneCallEndsTheAnswer) {
  json body = request();
  body["parallel_tool_calls"] = false;
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const Reply reply = chat(body);
    const json message =
        stream ? message_of(reply.events()) : reply.body_json()["choices"][0]["message"];
    EXPECT_EQ(message["tool_calls"].size(), 1u);
    EXPECT_TRUE(stream || reply.body_json()["choices"][0]["finish_reason"] == "tool_calls");
  }
  EXPECT_EQ(on_server([&] { return backend_.cancelled.load(); }), 2);
}

// Without tools, or with tools that it does not know, the model's text is the content.
TEST_F(CallServiceTest, WhatIsNoCallIsContent) {
  for (const json& changed : {json{{"tools", nullptr}}, json{{"tool_choice", "none"}},
                              json{{"tools", {tool("other")}}}}) {
    json body = request();
    body.update(changed);
    const json choice = chat(body).body_json()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_FALSE(choice["message"].contains("tool_calls"));
    EXPECT_THAT(choice["message"]["content"].get<std::string>(),
                StartsWith("I look.\n<tool_call>"));
  }
}

TEST_F(CallServiceTest, ReasoningMayBeLeftOut) {
  json body = request();
  body["include_reasoning"] = false;
  const json message = chat(body).body_json()["choices"][0]["message"];
  EXPECT_FALSE(message.contains("reasoning"));
  EXPECT_EQ(message["content"], "I look.");
}

// An answer that a limit cuts in the middle of a call has its beginning.
TEST_F(CallServiceTest, LimitsCutCalls) {
  json body = request();
  const std::string_view text = kAnswer;
  const auto cut = tokenizer_.encode(text.substr(0, text.find("\"n\"")), false).size();
  body["max_tokens"] = cut;
  const json choice = chat(body).body_json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_THAT(choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>(),
              StartsWith("{\"what\": \"a \\\"b\\\"\""));
}

TEST_F(CallServiceTest, TemplatesGetWhatWasCalledAndThought) {
  json body = request();
  body["tools"] = json::array({tool("find")});
  body["reasoning_effort"] = "high";
  body["messages"] = {
      {{"role", "user"}, {"content", "x"}},
      {{"role", "assistant"},
       {"content", nullptr},
       {"reasoning", "thought"},
       {"tool_calls",
        {{{"id", "1"},
          {"type", "function"},
          {"function", {{"name", "find"}, {"arguments", "{\"n\": 1}"}}}}}}},
      {{"role", "tool"}, {"tool_call_id", "1"}, {"content", {{{"type", "text"}, {"text", "5"}}}}}};
  ASSERT_EQ(chat(body).status, 200) << chat(body).body;
  EXPECT_THAT(prompt(),
              testing::EndsWith(R"(user:x;assistant:thought<tool_call>{"n": 1};tool:5;high)"));
  body["reasoning_effort"] = "none";
  ASSERT_EQ(chat(body).status, 200);
  EXPECT_THAT(prompt(), testing::EndsWith("tool:5;<think></think>"));
}

// However a request asks for reasoning, and whatever the template calls it.
TEST_F(CallServiceTest, TemplatesGetTheEffortsThatTheyKnow) {
  json body = {
      {"model", "m"},
      {"chat_template", "effort"},
      {"messages", {{{"role", "assistant"}, {"content", "x"}, {"reasoning_content", "thought"}}}}};
  const auto prompt_with = [&](const json& more) {
    json asked = body;
    asked.update(more);
    const Reply reply = chat(asked);
    return reply.status == 200 ? prompt() : reply.body;
  };
  const std::string off = "no_think;False;disabled;thought", on = ";True;enabled;thought";
  EXPECT_EQ(prompt_with({{"reasoning_effort", "none"}}), off);
  EXPECT_EQ(prompt_with({{"reasoning_effort", "minimal"}}), "low" + on);
  EXPECT_EQ(prompt_with({{"reasoning_effort", "low"}}), "low" + on);
  EXPECT_EQ(prompt_with({{"reasoning_effort", "medium"}}), "high" + on);
  EXPECT_EQ(prompt_with({{"reasoning_effort", "max"}}), "high" + on);
  for (const char* name : {"enable_thinking", "thinking"}) {
    EXPECT_EQ(prompt_with({{"chat_template_kwargs", {{name, false}}}}), off);
    EXPECT_EQ(prompt_with({{"chat_template_kwargs", {{name, true}}}}), "high" + on);
  }
  // What a client sets itself stays.
  EXPECT_EQ(
      prompt_with({{"reasoning_effort", "high"},
                   {"chat_template_kwargs",
                    {{"thinking", "so"}, {"thinking_mode", 1}, {"reasoning_effort", "low"}}}}),
      "low;so;1;thought");
  EXPECT_THAT(prompt_with(json::object()), HasSubstr("effort"));
}

TEST_F(CallServiceTest, MistakesInToolsAreNamed) {
  const auto complaint = [&](const json& changed) {
    json body = request();
    body.update(changed);
    const Reply reply = chat(body);
    EXPECT_EQ(reply.status, 400) << changed;
    return reply.body_json()["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(complaint({{"tools", 5}}), "tools: expected a list");
  EXPECT_EQ(complaint({{"tools", {tool("a"), 5}}}), "tools: tools[1]: expected an object");
  EXPECT_EQ(complaint({{"tools", {{{"type", "web_search"}}}}}),
            "tools: tools[0].type: expected \"function\", found \"web_search\"");
  EXPECT_EQ(complaint({{"tools", {{{"type", "function"}, {"function", json::object()}}}}}),
            "tools: tools[0].function.name: expected a name, found null");
  EXPECT_EQ(
      complaint({{"tools",
                  {{{"type", "function"}, {"function", {{"name", "a"}, {"parameters", "x"}}}}}}}),
      "tools: tools[0].function.parameters: expected a JSON schema, an object, found \"x\"");
  EXPECT_THAT(complaint({{"tool_choice", "any"}}), HasSubstr("found \"any\""));
  EXPECT_THAT(complaint({{"tool_choice", "required"}, {"tools", nullptr}}),
              HasSubstr("expected tools beside it"));
  const json named = {{"type", "function"}, {"function", {{"name", "nobody"}}}};
  EXPECT_THAT(complaint({{"tool_choice", named}}), HasSubstr("found \"nobody\""));
  EXPECT_THAT(complaint({{"tool_choice", "required"}, {"chat_template", "default"}}),
              HasSubstr("--tool-call-parser"));
  EXPECT_THAT(complaint({{"tool_choice", "required"}, {"guided_regex", "a"}}),
              HasSubstr("a call that must come, and guided_regex: expected one of them"));
  EXPECT_EQ(complaint({{"parallel_tool_calls", 3}}), "parallel_tool_calls: expected true or false");
  EXPECT_THAT(complaint({{"reasoning_effort", "huge"}}), HasSubstr("found \"huge\""));
  const json message = {{"role", "assistant"}, {"tool_calls", {{{"name", "f"}}}}};
  EXPECT_THAT(complaint({{"messages", {message}}}), HasSubstr("messages[0]: tool_calls: expected"));
}

// A grammar that lets nothing else be sampled goes to the ranks.
TEST_F(CallServiceTest, CallsThatMustComeHaveAGrammar) {
  json body = request();
  for (const json& choice : {json("required"), tool("stop")}) {
    body["tool_choice"] = choice;
    const json answer = chat(body).body_json()["choices"][0];
    EXPECT_EQ(answer["finish_reason"], "tool_calls");
    EXPECT_NE(backend_.last_request.grammar, nullptr);
  }
  body["tool_choice"] = "auto";
  EXPECT_EQ(chat(body).status, 200);
  EXPECT_EQ(backend_.last_request.grammar, nullptr);
}

// After reasoning, an answer has its format or calls a tool.
TEST_F(CallServiceTest, FormatsLeaveReasoningAndCallsFree) {
  json body = request();
  body["guided_choice"] = {"yes", "no"};
  ASSERT_EQ(chat(body).status, 200);
  ASSERT_NE(backend_.last_request.grammar, nullptr);
  const auto grammar = grammar::Grammar::decode(*backend_.last_request.grammar);
  for (const std::string before : {"", "<think>Hm.</think>\n\n"}) {
    EXPECT_EQ(match(grammar, before + "no"), grammar::Match::kWhole);
    EXPECT_EQ(match(grammar,
                    before + "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"),
              grammar::Match::kWhole);
    EXPECT_EQ(match(grammar, before + "maybe"), grammar::Match::kNone);
  }
  // With thinking off the format begins at once, whether the prompt says so or the request alone.
  for (const char* name : {"enable_thinking", "thinking"}) {
    body["chat_template_kwargs"] = {{name, false}};
    ASSERT_EQ(chat(body).status, 200);
    const auto at_once = grammar::Grammar::decode(*backend_.last_request.grammar);
    EXPECT_EQ(match(at_once, "no"), grammar::Match::kWhole);
    EXPECT_EQ(match(at_once, "<think>"), grammar::Match::kNone);
    EXPECT_EQ(match(at_once, "\n"), grammar::Match::kNone);
  }
}

// Ten thousand tools are a matter of milliseconds.
TEST_F(CallServiceTest, ManyTools) {
  json body = request();
  body["tools"] = json::array();
  body["chat_template"] = "default";
  for (int i = 0; i < 10'000; ++i) body["tools"].push_back(tool("tool_" + std::to_string(i)));
  const int64_t begin = process_cpu_ns(), resident = max_resident_bytes();
  EXPECT_EQ(chat(body).status, 200);
  if (base::kSanitized) return;
  EXPECT_LT(process_cpu_ns() - begin, 3'000'000'000);
  EXPECT_LT(max_resident_bytes() - resident, int64_t{256} << 20);
}

// ---- /v1/responses ----

class ResponsesServiceTest : public CallServiceTest {
 protected:
  ResponsesServiceTest() : CallServiceTest(std::string(kAnswer) + "\nDone.") {}

  static json response_request(const json& more = json::object()) {
    json body = {
        {"model", "m"},
        {"chat_template", "qwen"},
        {"input", "Hi"},
        {"tools",
         {{{"type", "function"}, {"name", "find"}}, {{"type", "function"}, {"name", "stop"}}}}};
    body.update(more);
    return body;
  }
  Reply respond(const json& more = json::object()) {
    return ask("POST", "/v1/responses", response_request(more).dump());
  }
  static std::vector<json> events_of(const Reply& reply) {
    std::vector<json> events;
    constexpr std::string_view kData = "\ndata: ";
    for (size_t at = reply.body.find(kData); at != reply.body.npos;
         at = reply.body.find(kData, at + 1)) {
      const size_t begin = at + kData.size();
      events.push_back(
          json::parse(reply.body.substr(begin, reply.body.find("\n\n", begin) - begin)));
      EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
    }
    return events;
  }
  // What a reply says whatever its ids and times are.
  static std::string output_of(const json& response) {
    std::string text;
    for (const json& item : response["output"]) {
      text += item["type"].get<std::string>() + ":";
      text += item["type"] == "function_call"
                  ? item["name"].get<std::string>() + item["arguments"].get<std::string>()
                  : item["content"][0]["text"].get<std::string>();
      text += ";";
    }
    return text;
  }
  static constexpr const char* kOutput =
      "reasoning:Hm, so.;message:I look.;function_call:find{\"what\": \"a \\\"b\\\"\", "
      "\"n\": 3};function_call:stop{};message:Done.;";
};

TEST_F(ResponsesServiceTest, AnswersAreItems) {
  backend_.cached_tokens = 2;
  const json response = respond({{"user", "u"}}).body_json();
  EXPECT_EQ(output_of(response), kOutput);
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["user"], "u");
  EXPECT_EQ(response["store"], false);
  EXPECT_THAT(response["id"].get<std::string>(), StartsWith("resp_"));
  EXPECT_THAT(response["output"][2]["call_id"].get<std::string>(), StartsWith("call_"));
  EXPECT_NE(response["output"][2]["call_id"], response["output"][3]["call_id"]);
  const json& usage = response["usage"];
  EXPECT_EQ(usage["input_tokens"], backend_.last_request.prompt.size());
  EXPECT_EQ(usage["input_tokens_details"]["cached_tokens"], 2);
  // From <think> to the last word, without </think>.
  EXPECT_EQ(usage["output_tokens_details"]["reasoning_tokens"],
            tokenizer_.encode("<think>\nHm, so.", false).size());
  EXPECT_EQ(on_server([&] { return service_->metrics().replies[{"/v1/responses", 200}]; }), 1);
}

TEST_F(ResponsesServiceTest, StreamsHaveTheSameItems) {
  for (const int interval : {1, 2, 3, 5, 50}) {
    finish();
    start({.model = "m", .max_sequence = 2048, .max_queue = 8, .stream_interval = interval},
          size_t{8} << 20);
    backend_.per_step = 1 + interval % 3;
    const std::vector<json> events = events_of(respond({{"stream", true}}));
    ASSERT_GT(events.size(), 20u);
    EXPECT_EQ(events.front()["type"], "response.created");
    EXPECT_EQ(events.back()["type"], "response.completed");
    EXPECT_EQ(output_of(events.back()["response"]), kOutput) << interval;
    std::map<std::string, std::string> texts;  // by the ids of items
    for (const json& event : events) {
      if (event.contains("delta")) texts[event["item_id"]] += event["delta"].get<std::string>();
    }
    for (const json& item : events.back()["response"]["output"]) {
      const json& text =
          item["type"] == "function_call" ? item["arguments"] : item["content"][0]["text"];
      EXPECT_EQ(json(texts[item["id"]]), text);
    }
  }
}

TEST_F(ResponsesServiceTest, ReasoningMayBeLeftOut) {
  const json response = respond({{"include_reasoning", false}}).body_json();
  EXPECT_THAT(output_of(response), StartsWith("message:I look.;"));
}

TEST_F(ResponsesServiceTest, StreamsGoOnAtAnotherServer) {
  // When it was complete is known at its end.
  expect_resumes("/v1/responses", response_request({{"store", true}}), [](std::string& text) {
    const size_t at = text.find("\"completed_at\":1");
    if (at != text.npos) text.erase(at, std::string("\"completed_at\":1234567890").size());
  });
  const json first = respond({{"store", true}}).body_json();
  // What this one depends on is here alone.
  const std::string body =
      response_request({{"previous_response_id", first["id"]}, {"stream", true}}).dump();
  const Reply reply = ask("POST", "/v1/responses", body, "X-Wideep-Journal: 1\r\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_THAT(reply.body, Not(HasSubstr("wideep-record")));
}

// Under the id that its client has read.
TEST_F(ResponsesServiceTest, WhatGoesOnAtAnotherServerIsStoredThere) {
  const std::string body = response_request({{"store", true}, {"stream", true}}).dump();
  const Reply whole = ask("POST", "/v1/responses", body, "X-Wideep-Journal: 1\r\n");
  StreamJournalMemory memory;
  Reply shown;
  shown.body = StreamJournal(memory).take(whole.body);
  const std::string id = events_of(shown)[0]["response"]["id"];
  EXPECT_EQ(ask("DELETE", "/v1/responses/" + id).status, 200);
  StreamJournal journal(memory);
  journal.take(std::string_view(whole.body).substr(0, whole.body.size() / 2));
  EXPECT_EQ(resume("/v1/responses", body, journal).status, 200);
  EXPECT_EQ(output_of(ask("GET", "/v1/responses/" + id).body_json()), kOutput);
}

TEST_F(ResponsesServiceTest, LimitsMakeThemIncomplete) {
  const json response = respond({{"max_output_tokens", 3}}).body_json();
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
}

TEST_F(ResponsesServiceTest, NothingIsStoredUnlessItIsAskedFor) {
  const json response = respond().body_json();
  const std::string path = "/v1/responses/" + response["id"].get<std::string>();
  const Reply missing = ask("GET", path);
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.body_json()["error"]["code"], "response_not_found");
  const Reply next = respond({{"previous_response_id", response["id"]}});
  EXPECT_EQ(next.status, 404);
  EXPECT_EQ(next.body_json()["error"]["param"], "previous_response_id");
  EXPECT_THAT(ask("GET", "/metrics").body, HasSubstr("\nwideep_stored_responses 0\n"));
}

TEST_F(ResponsesServiceTest, StoredResponsesGoOn) {
  for (const bool stream : {false, true}) {
    const Reply reply = respond({{"store", true}, {"stream", stream}, {"instructions", "Be kind"}});
    const json response = stream ? events_of(reply).back()["response"] : reply.body_json();
    EXPECT_EQ(response["store"], true);
    const std::string path = "/v1/responses/" + response["id"].get<std::string>();
    EXPECT_EQ(ask("GET", path).body_json(), response);
    const json items = ask("GET", path + "/input_items").body_json();
    ASSERT_EQ(items["data"].size(), 1u);
    EXPECT_EQ(items["data"][0]["content"][0]["text"], "Hi");
    EXPECT_EQ(ask("GET", path + "/input_items?limit=x").status, 400);
    EXPECT_EQ(ask("GET", path + "/nothing").status, 404);
    EXPECT_EQ(ask("GET", path + "?stream=true").status, 400);
    const Reply next = respond({{"previous_response_id", response["id"]},
                                {"input",
                                 {{{"type", "function_call_output"},
                                   {"call_id", response["output"][2]["call_id"]},
                                   {"output", "5"}},
                                  {{"type", "function_call_output"},
                                   {"call_id", response["output"][3]["call_id"]},
                                   {"output", "6"}}}},
                                {"tools", {{{"type", "function"}, {"name", "find"}}}}});
    ASSERT_EQ(next.status, 200) << next.body;
    EXPECT_EQ(next.body_json()["previous_response_id"], response["id"]);
    EXPECT_THAT(prompt(), testing::EndsWith(
                              R"(user:Hi;assistant:Hm, so.I look.<tool_call>{"what": "a \"b\"", )"
                              R"("n": 3}<tool_call>{};assistant:Done.;tool:5;tool:6;)"));
    EXPECT_EQ(ask("DELETE", path).body_json(),
              json({{"id", response["id"]}, {"object", "response"}, {"deleted", true}}));
    EXPECT_EQ(ask("DELETE", path).status, 404);
    EXPECT_EQ(ask("GET", path).status, 404);
  }
}

TEST_F(ResponsesServiceTest, TheStoreIsBounded) {
  finish();
  start({.model = "m",
         .max_sequence = 2048,
         .max_queue = 8,
         .stored_responses = {.count = 2, .bytes = 1 << 20}},
        size_t{8} << 20);
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) {
    paths.push_back("/v1/responses/" +
                    respond({{"store", true}}).body_json()["id"].get<std::string>());
  }
  EXPECT_EQ(ask("GET", paths[0]).status, 404);
  EXPECT_EQ(ask("GET", paths[1]).status, 200);
  EXPECT_EQ(ask("GET", paths[2]).status, 200);
  EXPECT_THAT(ask("GET", "/metrics").body,
              HasSubstr("\nwideep_stored_responses_evicted_total 1\n"));
  const Reply large = respond({{"store", true}, {"input", std::string(1 << 20, ' ')}});
  EXPECT_EQ(large.status, 400);
  EXPECT_EQ(large.body_json()["error"]["param"], "store");
}

// Tools are no part of the prompt if none may be called, but the response repeats them; as JSON
// values they take many times their text.
TEST_F(ResponsesServiceTest, WhatAnswersHoldIsBounded) {
  backend_.max_tokens = 3;
  finish();
  start({.model = "m", .max_sequence = 1 << 20, .max_queue = 100},
        {.max_body_bytes = size_t{8} << 20, .max_request_bytes_of_all = size_t{8} << 20});
  json parameters = json::array();
  for (int i = 0; i < 100'000; ++i) parameters.push_back(json::array());
  const std::string body =
      response_request({{"tools",
                         {{{"type", "function"},
                           {"name", "f"},
                           {"parameters", {{"type", "object"}, {"enum", parameters}}}}}},
                        {"tool_choice", "none"},
                        {"max_output_tokens", 1 << 19}})
          .dump();
  const auto ask_for = [&](Socket& client) {
    client.send("POST /v1/responses HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
  };
  const auto running = [&] { return on_server([&] { return service_->metrics().running; }); };
  const auto expect_running = [&](int64_t count) {
    for (int i = 0; i < 4000 && running() != count; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(running(), count);
  };
  {
    Socket first(server_->port()), second(server_->port());
    ask_for(first);
    expect_running(1);
    EXPECT_GT(on_server([&] { return server_->totals().requests; }), 10 * body.size());
    ask_for(second);
    EXPECT_THAT(second.receive(), StartsWith("HTTP/1.1 503"));
    expect_running(1);
    EXPECT_EQ(respond({{"max_output_tokens", 3}}).status, 200);
  }
  expect_running(0);
  EXPECT_EQ(on_server([&] { return server_->totals().requests; }), 0u);
}

// Whatever many clients send, little is held of it, and another one is answered.
TEST_F(ResponsesServiceTest, ManyClientsLeaveRoomForOthers) {
  backend_.max_tokens = 3;  // answers that may have more do not end
  finish();
  constexpr size_t kMiB = size_t{1} << 20;
  start({.model = "m", .max_sequence = 1 << 20, .max_queue = 200},
        {.max_body_bytes = 8 * kMiB, .max_connections = 200, .max_request_bytes_of_all = 8 * kMiB});
  json input = json::array();
  for (int i = 0; i < 4096; ++i) {
    input.push_back({{"role", "user"}, {"content", std::string(512, 'x')}});
  }
  const json shows_no_messages = {{"chat_template", "tool_use"}};
  json first = {{"store", true}, {"input", input}, {"max_output_tokens", 2}};
  first.update(shows_no_messages);
  const json id = respond(first).body_json()["id"];
  json next = {{"previous_response_id", id}, {"store", true}, {"max_output_tokens", 1000}};
  next.update(shows_no_messages);

  const auto post = [](const std::string& path, const std::string& body) {
    return "POST " + path +
           " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
  };
  // All but a byte of a body that some endpoints would read.
  const auto max_of = [](const std::string& request) {
    return request + " HTTP/1.1\r\nHost: h\r\nContent-Length: 1000001\r\n\r\n" +
           std::string(1'000'000, 'x');
  };
  std::string fields = "GET / HTTP/1.1\r\n";
  while (fields.size() < 16'000) fields += "a:\r\n";
  const json long_prompt = {{"model", "m"}, {"prompt", std::string(1'000'000, 'x')}};
  const struct {
    const char* name;
    std::string request;
    int count;
    size_t max_held;  // of memory
    bool leaves = false;
  } kinds[] = {
      {"leave", post("/v1/completions", long_prompt.dump()), 30, 16 * kMiB, true},
      {"unknown paths", max_of("POST /nowhere"), 60, 8 * kMiB},
      {"wrong methods", max_of("PUT /v1/completions"), 60, 8 * kMiB},
      {"questions", max_of("OPTIONS /v1/completions"), 60, 8 * kMiB},
      {"public pages", max_of("GET /health"), 60, 8 * kMiB},
      {"go on from a stored response", post("/v1/responses", response_request(next).dump()), 16,
       16 * kMiB},
      {"many fields", fields, 150, 8 * kMiB},
      {"silent", "", 400, 8 * kMiB},
  };
  const json short_prompt = {
      {"model", "m"}, {"prompt", std::string(100'000, 'x')}, {"max_tokens", 2}};
  ASSERT_EQ(complete(short_prompt).status, 200);
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const size_t before = allocated_bytes();
    std::vector<std::unique_ptr<Socket>> clients;
    for (int i = 0; i < kind.count; ++i) {
      clients.push_back(std::make_unique<Socket>(server_->port()));
      clients.back()->send_some(kind.request);
      if (kind.leaves) clients.clear();
    }
    // Requests of clients that leave count until the server has seen that they have.
    const auto has_room = [&] {
      return complete(short_prompt).status == 200 &&
             on_server([&] { return server_->totals().requests; }) < 5 * kMiB &&
             (base::kSanitized || allocated_bytes() < before + kind.max_held);
    };
    bool found = has_room();
    for (int i = 0; kind.leaves && !found && i < 1000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      found = has_room();
    }
    EXPECT_TRUE(found) << allocated_bytes() - before;
  }
}

// The page is looked for on the work thread.
TEST_F(ResponsesServiceTest, ListingItemsDelaysNobody) {
  finish();
  const size_t length = base::kSanitized ? size_t{1} << 20 : size_t{6} << 20;
  start({.model = "m", .max_sequence = 2048, .max_queue = 8}, size_t{8} << 20);
  json input = json::array();
  for (size_t bytes = 0; bytes < length; bytes += 100) {
    input.push_back({{"role", "user"}, {"content", "one of very many"}});
  }
  // The template shows no messages.
  const Reply stored = respond({{"store", true}, {"input", input}, {"chat_template", "tool_use"}});
  ASSERT_EQ(stored.status, 200) << stored.body;
  const std::string path = "/v1/responses/" + stored.body_json()["id"].get<std::string>();
  const auto thread_ns = [&] { return on_server([] { return base::thread_cpu_ns(); }); };
  const int64_t before = process_cpu_ns(), before_of_thread = thread_ns();
  const Reply page = ask("GET", path + "/input_items?limit=5");
  EXPECT_LT((thread_ns() - before_of_thread) * 4, process_cpu_ns() - before);
  EXPECT_EQ(page.body_json()["data"].size(), 5u);
  EXPECT_EQ(ask("GET", path + "/input_items?limit=0").status, 400);
}

TEST_F(ResponsesServiceTest, DevelopersAreSystemsForTemplatesWithoutThem) {
  ASSERT_EQ(
      respond({{"input",
                {{{"role", "developer"}, {"content", "a"}}, {{"role", "user"}, {"content", "b"}}}}})
          .status,
      200);
  EXPECT_THAT(prompt(), HasSubstr("system:a;user:b;"));
}

TEST_F(ResponsesServiceTest, MistakesAreNamed) {
  const auto error = [&](const json& more) { return respond(more).body_json()["error"]; };
  EXPECT_EQ(error({{"model", "x"}})["code"], "model_not_found");
  EXPECT_EQ(error({{"input", std::string(1 << 20, 'x')}})["param"], "input");
  EXPECT_EQ(respond({{"max_output_tokens", 5000}}).status, 200);  // ends with the context
  const json format = {{"format",
                        {{"type", "json_schema"},
                         {"name", "n"},
                         {"schema", {{"type", "object"}, {"not", json::object()}}}}}};
  EXPECT_EQ(error({{"text", format}, {"tools", json::array()}})["param"], "text.format.schema");
  EXPECT_EQ(ask("GET", "/v1/responses").status, 405);
  EXPECT_THAT(ask("OPTIONS", "/v1/responses/x").head,
              HasSubstr("Allow: GET, HEAD, DELETE, OPTIONS"));
  EXPECT_EQ(ask("PUT", "/v1/responses/x").status, 405);
}

// A marker that is a special token is no part of a plain answer, but of this one.
class SpecialCallServiceTest : public ServiceTest {
 protected:
  static tokenizer::Tokenizer with_special_token() {
    const std::string path = WIDEEP_SOURCE_DIR "/models/reference/tokenizer.json";
    json file = json::parse(formats::read_file(path).value());
    file["added_tokens"].push_back({{"id", 8192},
                                    {"content", "[TOOL_CALLS]"},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
    return tokenizer::Tokenizer::parse(file.dump(), path).value();
  }
  SpecialCallServiceTest()
      : ServiceTest(with_special_token(),
                    "Yes.[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}]") {}
};

TEST_F(SpecialCallServiceTest, SpecialTokensMarkCalls) {
  json body = {{"model", "m"},
               {"chat_template", "mistral"},
               {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
               {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}};
  const json message = chat(body).body_json()["choices"][0]["message"];
  EXPECT_EQ(message["content"], "Yes.");
  ASSERT_EQ(message["tool_calls"].size(), 1u);
  const std::string id = message["tool_calls"][0]["id"];
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz"), id.npos);
  body["chat_template"] = "default";
  EXPECT_EQ(chat(body).body_json()["choices"][0]["message"]["content"],
            "Yes.[{\"name\": \"f\", \"arguments\": {}}]");
}

// Kimi's ids have numbers, which a model may begin anew in each turn.
class NumberedCallServiceTest : public ServiceTest {
 protected:
  static constexpr const char* kCall =
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
      "<|tool_call_end|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
      "<|tool_call_end|><|tool_calls_section_end|>";
  NumberedCallServiceTest()
      : ServiceTest(tokenizer::Tokenizer::read(WIDEEP_SOURCE_DIR "/models/reference").value(),
                    kCall) {
    finish();
    start({.model = "m", .max_sequence = 2048});
  }

  std::vector<std::string> ids_after(const json& messages) {
    const json message = chat({{"model", "m"},
                               {"chat_template", "kimi"},
                               {"messages", messages},
                               {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}})
                             .body_json()["choices"][0]["message"];
    std::vector<std::string> ids;
    for (const json& call : message["tool_calls"]) ids.push_back(call["id"]);
    return ids;
  }
};

TEST_F(NumberedCallServiceTest, IdsAreNewInTheConversation) {
  using testing::ElementsAre;
  json messages = {{{"role", "user"}, {"content", "Hi"}}};
  EXPECT_THAT(ids_after(messages), ElementsAre("functions.f:0", "functions.f:1"));
  const auto call = [](const char* id) {
    return json{
        {"id", id}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
  };
  messages.push_back({{"role", "assistant"},
                      {"content", nullptr},
                      {"tool_calls", {call("functions.f:0"), call("functions.f:3")}}});
  messages.push_back({{"role", "tool"}, {"tool_call_id", "functions.f:0"}, {"content", "1"}});
  EXPECT_THAT(ids_after(messages), ElementsAre("functions.f:2", "functions.f:4"));
}

// ---- chats with a model that writes harmony ----

// The reference's tokenizer with harmony's special tokens.
tokenizer::Tokenizer harmony_tokenizer() {
  const std::string path = WIDEEP_SOURCE_DIR "/models/reference/tokenizer.json";
  json file = json::parse(formats::read_file(path).value());
  int id = 8192;
  for (const char* name :
       {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>", "<|call|>"}) {
    file["added_tokens"].push_back({{"id", id++},
                                    {"content", name},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  return tokenizer::Tokenizer::parse(file.dump(), path).value();
}

class HarmonyServiceTest : public ServiceTest {
 protected:
  HarmonyServiceTest()
      : ServiceTest(harmony_tokenizer(),
                    "<|channel|>analysis<|message|>Hm, so.<|end|><|start|>assistant"
                    "<|channel|>final<|message|>Yes, so it is.") {}

  static json request() {
    return {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  }
};

TEST_F(HarmonyServiceTest, ReasoningHasAFieldOfItsOwn) {
  const json body = chat(request()).body_json();
  const json& message = body["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm, so.");
  EXPECT_EQ(message["content"], "Yes, so it is.");
  const json plain = complete({{"model", "m"}, {"prompt", "Hi"}, {"max_tokens", 50}}).body_json();
  EXPECT_EQ(plain["choices"][0]["text"], "analysisHm, so.assistantfinalYes, so it is.");
}

TEST_F(HarmonyServiceTest, StreamsContainBothFieldsInPieces) {
  json streamed = request();
  streamed["stream"] = true;
  std::string reasoning, content;
  int pieces = 0;
  for (const json& event : chat(streamed).events()) {
    const json& delta = event["choices"][0]["delta"];
    if (delta.contains("reasoning_content")) {
      EXPECT_EQ(content, "");
      ++pieces;
    }
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
  }
  EXPECT_EQ(reasoning, "Hm, so.");
  EXPECT_EQ(content, "Yes, so it is.");
  EXPECT_GT(pieces, 1);
}

TEST_F(HarmonyServiceTest, StopStringsEndTheContentOnly) {
  json stopped = request();
  stopped["stop"] = {"so"};
  const json message = chat(stopped).body_json()["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm, so.");
  EXPECT_EQ(message["content"], "Yes, ");
}

class HarmonyCallServiceTest : public ServiceTest {
 protected:
  HarmonyCallServiceTest()
      : ServiceTest(
            harmony_tokenizer(),
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary"
            " to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>") {}
};

TEST_F(HarmonyCallServiceTest, MessagesToFunctionsAreCalls) {
  json body = {{"model", "m"},
               {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
               {"chat_template", "default"},
               {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}};
  const json whole = chat(body).body_json()["choices"][0];
  EXPECT_EQ(whole["finish_reason"], "tool_calls");
  EXPECT_EQ(whole["message"]["reasoning"], "Hm.");
  EXPECT_EQ(whole["message"]["content"], nullptr);
  body["stream"] = true;
  const json streamed = message_of(chat(body).events());
  for (const json& message : {whole["message"], streamed}) {
    ASSERT_EQ(message["tool_calls"].size(), 1u);
    EXPECT_EQ(message["tool_calls"][0]["function"],
              (json{{"name", "f"}, {"arguments", "{\"a\": 1}"}}));
  }
}

// ---- Anthropic's messages ----

// The events of a stream, each with its name, which the data has too.
std::vector<json> named_events(const Reply& reply) {
  std::vector<json> events;
  std::string_view rest = reply.body;
  while (!rest.empty()) {
    const size_t line = rest.find('\n'), end = rest.find("\n\n");
    EXPECT_TRUE(rest.starts_with("event: ") && end != rest.npos) << rest;
    if (end == rest.npos) break;
    const std::string_view data = rest.substr(line + 1, end - line - 1);
    EXPECT_TRUE(data.starts_with("data: ")) << data;
    events.push_back(json::parse(data.substr(6)));
    EXPECT_EQ(events.back()["type"], rest.substr(7, line - 7));
    rest.remove_prefix(end + 2);
  }
  return events;
}

// What a client puts together of the events, as the reply without a stream.
json message_of_named(const std::vector<json>& events) {
  json message;
  std::vector<std::string> inputs;
  for (const json& event : events) {
    const std::string type = event["type"];
    if (type == "message_start") message = event["message"];
    if (type == "content_block_start") {
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      inputs.emplace_back();
    }
    if (type == "content_block_delta") {
      const size_t index = event["index"];
      const json& delta = event["delta"];
      json& block = message["content"][index];
      if (delta["type"] == "input_json_delta") inputs[index] += delta["partial_json"];
      for (const char* name : {"text", "thinking", "signature"}) {
        if (delta.contains(name)) {
          block[name] = block[name].get<std::string>() + delta[name].get<std::string>();
        }
      }
    }
    if (type == "content_block_stop" && !inputs.back().empty()) {
      message["content"].back()["input"] = json::parse(inputs.back());
    }
    if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"] = event["usage"];
    }
  }
  return message;
}

class MessagesServiceTest : public CallServiceTest {
 protected:
  using CallServiceTest::CallServiceTest;

  static json tool(const std::string& name) {
    return {{"name", name}, {"input_schema", {{"type", "object"}}}};
  }
  static json request() {
    return {{"model", "m"},
            {"max_tokens", 500},
            {"chat_template", "qwen"},
            {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}},
            {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
            {"tools", {tool("find"), tool("stop")}}};
  }
  static json with(const json& changed) {
    json body = request();
    body.update(changed);
    return body;
  }
  Reply send(const json& body, const std::string& headers = "") {
    return ask("POST", "/v1/messages?beta=true", body.dump(), headers);
  }
};

TEST_F(MessagesServiceTest, ThinkingTextAndCallsAreBlocks) {
  backend_.cached_tokens = 3;
  const Reply reply = send(request());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json body = reply.body_json();
  EXPECT_EQ(body["type"], "message");
  EXPECT_EQ(body["role"], "assistant");
  EXPECT_EQ(body["model"], "m");
  const std::string id = body["id"];
  EXPECT_THAT(id, StartsWith("msg_"));
  EXPECT_THAT(reply.head, HasSubstr("request-id: req_" + id.substr(4)));
  EXPECT_EQ(body["stop_reason"], "tool_use");
  EXPECT_TRUE(body["stop_sequence"].is_null());
  const json& content = body["content"];
  ASSERT_EQ(content.size(), 4u);
  EXPECT_EQ(content[0], (json{{"type", "thinking"}, {"thinking", "Hm, so."}, {"signature", id}}));
  EXPECT_EQ(content[1], (json{{"type", "text"}, {"text", "I look."}}));
  EXPECT_EQ(content[2]["type"], "tool_use");
  EXPECT_EQ(content[2]["name"], "find");
  EXPECT_EQ(content[2]["input"], (json{{"what", "a \"b\""}, {"n", 3}}));
  EXPECT_EQ(content[3]["name"], "stop");
  EXPECT_EQ(content[3]["input"], json::object());
  EXPECT_NE(content[2]["id"], content[3]["id"]);
  EXPECT_THAT(content[2]["id"].get<std::string>(), StartsWith("toolu_"));
  const json& usage = body["usage"];
  EXPECT_EQ(usage["cache_read_input_tokens"], 3);
  EXPECT_EQ(usage["cache_creation_input_tokens"], 0);
  EXPECT_EQ(usage["input_tokens"].get<size_t>() + 3, backend_.last_request.prompt.size());
  EXPECT_EQ(usage["output_tokens"], tokenizer_.encode(kAnswer, false).size() + 1);
}

TEST_F(MessagesServiceTest, StreamsAreTheSameInNamedEvents) {
  for (const int interval : {1, 3, 1000}) {
    finish();
    start({.model = "m", .max_sequence = 2048, .max_queue = 8, .stream_interval = interval},
          size_t{8} << 20);
    backend_.per_step = 1 + interval % 3;
    json whole = send(request()).body_json();
    const std::vector<json> events = named_events(send(with({{"stream", true}})));
    std::vector<std::string> order;
    for (const json& event : events) {
      const std::string type = event["type"];
      if (order.empty() || order.back() != type) order.push_back(type);
    }
    const std::vector<std::string> block = {"content_block_start", "content_block_delta",
                                            "content_block_stop"};
    std::vector<std::string> expected = {"message_start", "content_block_start", "ping",
                                         "content_block_delta", "content_block_stop"};
    for (int i = 0; i < 3; ++i) expected.insert(expected.end(), block.begin(), block.end());
    expected.insert(expected.end(), {"message_delta", "message_stop"});
    EXPECT_EQ(order, expected) << interval;
    json streamed = message_of_named(events);
    EXPECT_EQ(streamed["content"][0]["signature"], streamed["id"]);
    for (json* message : {&whole, &streamed}) {
      message->erase("id");
      (*message)["content"][0].erase("signature");
      (*message)["content"][2].erase("id");
      (*message)["content"][3].erase("id");
    }
    EXPECT_EQ(streamed, whole) << interval;
  }
}

TEST_F(MessagesServiceTest, TheTemplateSeesOpenAisMessages) {
  const json history = {
      {"system", {{{"type", "text"}, {"text", "S"}, {"cache_control", {{"type", "ephemeral"}}}}}},
      {"messages",
       {{{"role", "user"}, {"content", "Hi"}},
        {{"role", "assistant"},
         {"content",
          {{{"type", "thinking"}, {"thinking", "T"}, {"signature", "x"}},
           {{"type", "text"}, {"text", "A"}},
           {{"type", "tool_use"}, {"id", "i"}, {"name", "find"}, {"input", {{"n", 3}}}}}}},
        {{"role", "user"},
         {"content",
          {{{"type", "tool_result"}, {"tool_use_id", "i"}, {"content", "R"}},
           {{"type", "text"}, {"text", "U"}}}}}}},
      {"tools", {tool("find")}},
      {"output_config", {{"effort", "low"}}}};
  ASSERT_EQ(send(with(history)).status, 200);
  EXPECT_EQ(prompt(),
            "[{\"type\": \"function\", \"function\": {\"name\": \"find\", \"parameters\": "
            "{\"type\": \"object\"}}}]system:S;user:Hi;assistant:TA<tool_call>{\"n\": 3};tool:R;"
            "user:U;low");
}

// Some templates know a system message only at the beginning.
TEST_F(MessagesServiceTest, LaterSystemMessagesAreTheUsersWhereTheTemplateFails) {
  json body = with({{"chat_template", "strict"}, {"tools", nullptr}});
  body["messages"].push_back({{"role", "system"}, {"content", "Be short."}});
  ASSERT_EQ(send(body).status, 200);
  EXPECT_EQ(prompt(), "user:Hi\n\nBe short.;");
  body["chat_template"] = "qwen";
  ASSERT_EQ(send(body).status, 200);
  EXPECT_THAT(prompt(), HasSubstr("user:Hi;system:Be short.;"));
}

// Who does not ask for thinking expects text first.
TEST_F(MessagesServiceTest, WithoutThinkingTheTemplateIsToldAndNoneIsReturned) {
  const Reply reply = send(with({{"thinking", nullptr}}));
  EXPECT_EQ(reply.body_json()["content"][0]["type"], "text");
  EXPECT_THAT(prompt(), testing::EndsWith("<think></think>"));
  send(request());
  EXPECT_THAT(prompt(), Not(HasSubstr("<think>")));
}

TEST_F(MessagesServiceTest, OneCallMayEndTheMessage) {
  const json body =
      send(with({{"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}}}))
          .body_json();
  EXPECT_EQ(body["content"].size(), 3u);
  EXPECT_EQ(body["stop_reason"], "tool_use");
}

TEST_F(MessagesServiceTest, CallsMayHaveToCome) {
  for (const json& choice : {json{{"type", "any"}}, json{{"type", "tool"}, {"name", "find"}}}) {
    ASSERT_EQ(send(with({{"tool_choice", choice}})).status, 200);
    EXPECT_NE(on_server([&] { return backend_.last_request.grammar; }), nullptr);
  }
  ASSERT_EQ(send(request()).status, 200);
  EXPECT_EQ(on_server([&] { return backend_.last_request.grammar; }), nullptr);
}

TEST_F(MessagesServiceTest, WhyAMessageHasEnded) {
  const json stopped = send(with({{"stop_sequences", {"zz", "oo"}}})).body_json();
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "oo");
  EXPECT_EQ(stopped["content"][1]["text"], "I l");
  EXPECT_EQ(send(with({{"max_tokens", 2}})).body_json()["stop_reason"], "max_tokens");
  EXPECT_EQ(send(with({{"tools", nullptr}})).body_json()["stop_reason"], "end_turn");

  finish();
  start({.model = "m", .max_sequence = 128, .max_queue = 8});
  const json plain = {{"chat_template", "default"}, {"tools", nullptr}, {"max_tokens", 4000}};
  backend_.endless = true;
  const json clipped = send(with(plain)).body_json();
  EXPECT_EQ(clipped["stop_reason"], "model_context_window_exceeded");
  EXPECT_EQ(
      clipped["usage"]["input_tokens"].get<int>() + clipped["usage"]["output_tokens"].get<int>(),
      128);
  json too_long = with(plain);
  too_long["messages"][0]["content"] = std::string(200, '7');
  const Reply refused = send(too_long);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body_json()["error"]["message"].get<std::string>(),
              StartsWith("prompt is too long: This model's maximum context length is 128 tokens"));
}

// A prompt that takes long to compute: clients hear of the server every few seconds.
TEST_F(MessagesServiceTest, SilentStreamsHavePings) {
  backend_.max_tokens = 0;
  const auto start_stream = [&](const char* path, json request) {
    auto socket = std::make_unique<Socket>(server_->port());
    request["stream"] = true;
    const std::string body = request.dump();
    socket->send(std::string("POST ") + path +
                 " HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: " +
                 std::to_string(body.size()) + "\r\n\r\n" + body);
    EXPECT_THAT(socket->receive(), StartsWith("HTTP/1.1 200"));
    return socket;
  };
  const auto rest_of = [&](const std::unique_ptr<Socket>& socket, int pings) {
    for (int i = 0; i < pings; ++i) {
      on_server([&] {
        service_->ping();
        return 0;
      });
    }
    EXPECT_TRUE(on_server([&] { return service_->fail("end"); }));
    return socket->receive_all();
  };
  const std::string ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
  const auto count = [&](const std::string& text) {
    int found = 0;
    for (size_t at = text.find(ping); at != text.npos; at = text.find(ping, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(rest_of(start_stream("/v1/messages", request()), 4)),
            3);  // not at once after the start
  finish();
  start({.model = "m", .max_sequence = 2048, .max_queue = 8}, size_t{8} << 20);
  const std::string openai =
      rest_of(start_stream("/v1/chat/completions", CallServiceTest::request()), 4);
  EXPECT_THAT(openai, Not(HasSubstr("ping")));
}

TEST_F(MessagesServiceTest, ALastMessageOfTheAssistantIsContinued) {
  json body = with({{"chat_template", "default"}, {"tools", nullptr}});
  body["messages"].push_back({{"role", "assistant"}, {"content", "So:"}});
  ASSERT_EQ(send(body).status, 200);
  EXPECT_THAT(prompt(), testing::EndsWith("[user] HiSo:"));
  // Reasoning that the template begins is ended before.
  body["chat_template"] = "opens";
  ASSERT_EQ(send(body).status, 200);
  EXPECT_THAT(prompt(), testing::EndsWith("Hi<think>\n\n</think>\n\nSo:"));
}

TEST_F(MessagesServiceTest, TokensAreCounted) {
  const json whole = send(request()).body_json();
  json body = request();
  body.erase("max_tokens");
  const Reply reply = ask("POST", "/v1/messages/count_tokens", body.dump());
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.body_json(), (json{{"input_tokens", whole["usage"]["input_tokens"]}}));
  body["model"] = "other";
  EXPECT_EQ(ask("POST", "/v1/messages/count_tokens", body.dump()).status, 404);
}

TEST_F(MessagesServiceTest, ErrorsHaveAnthropicsForm) {
  const auto refused = [&](const Reply& reply, int status, const std::string& type) {
    EXPECT_EQ(reply.status, status) << reply.body;
    const json body = reply.body_json();
    EXPECT_EQ(body["type"], "error");
    EXPECT_EQ(body["error"]["type"], type);
    const std::string id = body["request_id"];
    EXPECT_THAT(id, StartsWith("req_"));
    EXPECT_THAT(reply.head, HasSubstr("request-id: " + id));
    return body["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(refused(send(with({{"model", "other"}})), 404, "not_found_error"),
            "model: expected 'm', found 'other'");
  EXPECT_EQ(refused(send(with({{"n", 2}})), 400, "invalid_request_error"),
            "n: this field is not known");
  EXPECT_THAT(refused(ask("POST", "/v1/messages", "{"), 400, "invalid_request_error"),
              HasSubstr("body:1:1"));
  refused(ask("GET", "/v1/messages"), 405, "invalid_request_error");
  refused(ask("POST", "/v1/messages/batches", "{}"), 404, "not_found_error");
  EXPECT_TRUE(ask("POST", "/v1/chat/completions", "{").body_json()["error"].contains("param"));

  // Also where HTTP itself is wrong, or a body too large: then there is no id.
  finish();
  start({.model = "m", .max_sequence = 2048});
  const std::string large(5000, ' ');
  for (const char* path : {"/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens"}) {
    const Reply reply = ask("POST", path, large);
    EXPECT_EQ(reply.status, 413);
    EXPECT_EQ(reply.body_json()["error"]["type"], "request_too_large") << reply.body;
    EXPECT_TRUE(reply.body_json()["request_id"].is_null());
  }
  Socket wrong(server_->port());
  wrong.send("POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n");
  EXPECT_THAT(wrong.receive_all(), HasSubstr("{\"type\":\"error\",\"error\":{\"type\":"
                                             "\"invalid_request_error\","));
  EXPECT_TRUE(ask("POST", "/v1/responses", large).body_json()["error"].contains("param"));

  finish();
  start({.model = "m", .api_key = "secret", .max_sequence = 2048});
  refused(send(request()), 401, "authentication_error");
  refused(send(request(), "x-api-key: secrex\r\n"), 401, "authentication_error");
  for (const char* key : {"x-api-key: secret\r\n", "Authorization: Bearer secret\r\n"}) {
    refused(send(with({{"model", "other"}}), key), 404, "not_found_error");
  }
  on_server([&] {
    service_->drain();
    return 0;
  });
  refused(send(request(), "x-api-key: secret\r\n"), 503, "api_error");
}

TEST_F(MessagesServiceTest, AFullQueueIsOverloaded) {
  finish();
  start({.model = "m", .max_sequence = 2048, .max_queue = 1}, size_t{8} << 20);
  backend_.max_tokens = 1;
  Socket running(server_->port());
  const std::string body = with({{"stream", true}, {"max_tokens", 2000}}).dump();
  running.send("POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_THAT(running.receive(), StartsWith("HTTP/1.1 200"));
  const Reply refused = send(request());
  EXPECT_EQ(refused.status, 529);
  EXPECT_EQ(refused.body_json()["error"]["type"], "overloaded_error");
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: 1"));
}

TEST_F(MessagesServiceTest, StreamsGoOnAtAnotherServer) {
  backend_.cached_tokens = 3;
  expect_resumes("/v1/messages", request());
}

// Who can ask another server is told nothing of the failure.
TEST_F(MessagesServiceTest, FailuresCutAStreamWithRecords) {
  backend_.max_tokens = 1;
  Socket running(server_->port());
  const std::string body = with({{"stream", true}, {"max_tokens", 1500}}).dump();
  running.send("POST /v1/messages HTTP/1.1\r\nHost: h\r\nX-Wideep-Journal: 1\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_THAT(running.receive(), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(on_server([&] { return service_->fail("rank 1 has died"); }));
  const std::string rest = running.receive_all();
  EXPECT_THAT(rest, Not(HasSubstr("event: error")));
  EXPECT_THAT(rest, Not(HasSubstr("\r\n0\r\n\r\n")));
}

TEST_F(MessagesServiceTest, FailuresAreEventsOfAStream) {
  backend_.max_tokens = 1;
  Socket running(server_->port());
  const std::string body = with({{"stream", true}, {"max_tokens", 1500}}).dump();
  running.send("POST /v1/messages HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_THAT(running.receive(), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(on_server([&] { return service_->fail("rank 1 has died"); }));
  const std::string rest = running.receive_all();
  EXPECT_THAT(rest, HasSubstr("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
                              "\"api_error\",\"message\":\"rank 1 has died\"},\"request_id\":"));
  EXPECT_THAT(rest, Not(HasSubstr("[DONE]")));
}

TEST_F(MessagesServiceTest, ModelsAsAnthropicHasThem) {
  const std::string version = "anthropic-version: 2023-06-01\r\n";
  const json list = ask("GET", "/v1/models", "", version).body_json();
  EXPECT_EQ(list["data"][0]["type"], "model");
  EXPECT_EQ(list["data"][0]["id"], "m");
  EXPECT_EQ(list["has_more"], false);
  EXPECT_EQ(ask("GET", "/v1/models/m", "", version).body_json(), list["data"][0]);
  EXPECT_EQ(ask("GET", "/v1/models/x", "", version).body_json()["error"]["type"],
            "not_found_error");
  EXPECT_EQ(ask("GET", "/v1/models").body_json()["object"], "list");
}

TEST_F(HarmonyServiceTest, MessagesHaveThinkingAndCannotBeContinued) {
  json body = request();
  body["max_tokens"] = 60;
  body["thinking"] = {{"type", "adaptive"}};
  const json content = ask("POST", "/v1/messages", body.dump()).body_json()["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_EQ(content[0]["thinking"], "Hm, so.");
  EXPECT_EQ(content[1]["text"], "Yes, so it is.");
  body["messages"].push_back({{"role", "assistant"}, {"content", "So"}});
  const Reply refused = ask("POST", "/v1/messages", body.dump());
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("writes harmony"));
}

// ---- for routers ----

// A router computes from these which pages a request has.
TEST_F(ServiceTest, PromptTokensAreThoseThatTheRequestHas) {
  const json message = {{"role", "user"}, {"content", "Count."}};
  const std::pair<const char*, json> requests[] = {
      {"/v1/completions", {{"model", "m"}, {"prompt", {"Count.", "One"}}}},
      {"/v1/chat/completions", {{"model", "m"}, {"messages", {message}}}},
      {"/v1/responses", {{"model", "m"}, {"input", "Count."}}},
      {"/v1/messages", {{"model", "m"}, {"messages", {message}}, {"max_tokens", 4}}},
  };
  for (const auto& [path, body] : requests) {
    backend_.prompts.clear();
    ASSERT_EQ(ask("POST", path, body.dump()).status, 200) << path;
    const bool is_anthropic = body.contains("max_tokens");
    const Reply reply = ask(
        "POST", is_anthropic ? "/prompt_tokens?path=/v1/messages" : "/prompt_tokens", body.dump());
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json tokens = reply.body_json();
    ASSERT_EQ(tokens["prompts"].size(), backend_.prompts.size());
    for (size_t i = 0; i < backend_.prompts.size(); ++i) {
      EXPECT_EQ(tokens["prompts"][i], backend_.prompts[i].ids()) << path;
    }
    EXPECT_TRUE(tokens["cache_salt"].is_null());
  }
}

// As the KV events of the rank that computes them have them.
TEST_F(ServiceTest, PromptTokensHaveTheHashesOfTheirPages) {
  finish();
  start({.model = "m", .max_sequence = 256, .record_class = "class"});
  const std::vector<int32_t> ids(2 * store::kPageTokens + 1, 7);
  const json body = {{"model", "m"}, {"prompt", ids}, {"cache_salt", "a tenant"}};
  const json reply = ask("POST", "/prompt_tokens", body.dump()).body_json();
  std::array<int32_t, store::kPageTokens> page;
  page.fill(7);
  const store::Name first = store::page_name(store::root_name("class", "a tenant"), 0, page);
  const json hashes = {kv_events::hash_of(first),
                       kv_events::hash_of(store::page_name(first, 0, page))};
  EXPECT_EQ(reply["page_hashes"], json::array({hashes}));
}

TEST_F(ServiceTest, PromptTokensAreRefusedAsTheRequestIs) {
  const Reply reply =
      ask("POST", "/prompt_tokens", R"({"model": "m", "prompt": "x", "tokens": 1})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("tokens"));
  EXPECT_EQ(ask("POST", "/prompt_tokens", "{").status, 400);
  EXPECT_THAT(ask("POST", "/prompt_tokens?path=/v1/models", "{}").body,
              HasSubstr("expected that of an API for text"));
  finish();
  start({.model = "m", .api_key = "key", .max_sequence = 64});
  EXPECT_EQ(ask("POST", "/prompt_tokens", R"({"model": "m", "prompt": "x"})").status, 401);
}

class KvEventsServiceTest : public ServiceTest {
 protected:
  KvEventsServiceTest() {
    finish();
    log_.begin(1'800'000'000'000'000);
    start({.model = "m", .max_sequence = 64, .kv_events = &log_});
  }
  // The log must outlive the serving thread.
  ~KvEventsServiceTest() override {
    finish();
    start({.model = "m"});
  }

  void take(int page) {
    const auto name = [](int n) {
      store::Name value;
      value.bytes[7] = static_cast<unsigned char>(n + 1);
      return value;
    };
    engine::PageChange change{.page = page, .name = name(page), .before = name(page - 1)};
    change.tokens.fill(page);
    log_.take(1, false, std::span(&change, 1));
    if (service_->kv_events().has_waiting()) {
      server_->post([this] { service_->kv_events().look(); });
    }
  }
  Reply after(uint64_t sequence, int seconds = 0) {
    return ask("GET", fmt::format("/v1/kv_events?after={}&wait={}", sequence, seconds));
  }

  kv_events::EventLog log_{2, {.batches = 4}};
};

TEST_F(KvEventsServiceTest, ASnapshotHasWhatAllRanksKnow) {
  take(0);
  take(1);
  const json whole = ask("GET", "/v1/kv_events/snapshot").body_json();
  EXPECT_EQ(whole["sequence"], log_.last());
  EXPECT_EQ(whole["block_size"], 64);
  EXPECT_EQ(whole["is_complete"], true);
  ASSERT_EQ(whole["ranks"].size(), 2u);
  EXPECT_EQ(whole["ranks"][0], json({{"data_parallel_rank", 0}, {"blocks", json::array()}}));
  const json& blocks = whole["ranks"][1]["blocks"];
  ASSERT_EQ(blocks.size(), 2u);
  EXPECT_EQ(blocks[0]["hash"], 1);
  EXPECT_TRUE(blocks[0]["parent"].is_null());
  EXPECT_EQ(blocks[1]["parent"], 1);
  EXPECT_EQ(blocks[1]["token_ids"], std::vector<int>(64, 1));
  const json brief = ask("GET", "/v1/kv_events/snapshot?tokens=0").body_json();
  EXPECT_EQ(brief["ranks"][1]["blocks"][1], json({{"hash", 2}, {"parent", 1}}));
  EXPECT_EQ(ask("GET", "/v1/kv_events/snapshot?tokens=no").status, 400);
}

TEST_F(KvEventsServiceTest, WhatComesAfterASnapshotIsToldAtOnceOrWhenItComes) {
  const uint64_t begin = log_.last();
  take(0);
  const json there = after(begin).body_json();
  EXPECT_EQ(there["sequence"], begin + 1);
  EXPECT_EQ(there["batches"][0]["data_parallel_rank"], 1);
  EXPECT_EQ(there["batches"][0]["events"][0]["type"], "BlockStored");
  EXPECT_EQ(after(begin + 1).body_json(),
            json({{"sequence", begin + 1}, {"batches", json::array()}}));
  auto waiting = std::async(std::launch::async, [&] { return after(begin + 1, 60); });
  while (!service_->kv_events().has_waiting()) std::this_thread::yield();
  take(1);
  const json came = waiting.get().body_json();
  EXPECT_EQ(came["batches"][0]["events"][0]["block_hashes"], std::vector<int>{2});
  EXPECT_FALSE(service_->kv_events().has_waiting());
}

TEST_F(KvEventsServiceTest, WhoHasMissedBatchesBeginsAgain) {
  const uint64_t begin = log_.last();
  for (int page = 0; page < 5; ++page) take(page);
  EXPECT_EQ(after(begin).status, 410);
  EXPECT_EQ(after(begin + 1).status, 200);
  EXPECT_EQ(after(log_.last() + 1).status, 410);
  const Reply none = ask("GET", "/v1/kv_events");
  EXPECT_EQ(none.status, 410);
  EXPECT_THAT(none.body, HasSubstr("/v1/kv_events/snapshot"));
  EXPECT_EQ(ask("GET", "/v1/kv_events?after=x").status, 400);
  EXPECT_EQ(after(begin, 61).status, 400);
  EXPECT_EQ(after(begin, -1).status, 400);
}

TEST_F(KvEventsServiceTest, ThoseWhoWaitAreFewLeaveAndAreAnsweredAtTheEnd) {
  constexpr int kMost = 64;
  std::vector<std::future<Reply>> waiting;
  for (int i = 0; i < kMost + 2; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] { return after(log_.last(), 60); }));
  }
  int refused = 0;
  while (refused < 2) {
    for (std::future<Reply>& each : waiting) {
      if (!each.valid() || each.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready)
        continue;
      EXPECT_EQ(each.get().status, 429);
      ++refused;
    }
  }
  on_server([&] {
    service_->drain();
    return 0;
  });
  for (std::future<Reply>& each : waiting) {
    if (each.valid()) {
      EXPECT_EQ(each.get().status, 200);
    }
  }
  EXPECT_FALSE(service_->kv_events().has_waiting());
  EXPECT_EQ(after(log_.last(), 60).status, 200);
}

// Their tokens are those of all clients' prompts, which no client may read.
TEST_F(KvEventsServiceTest, AdminsAlone) {
  finish();
  start({.model = "m",
         .api_key = "secret",
         .admin_key = "root",
         .max_sequence = 64,
         .kv_events = &log_});
  for (const char* target : {"/v1/kv_events/snapshot", "/v1/kv_events?after=0"}) {
    EXPECT_EQ(ask("GET", target).status, 401);
    EXPECT_EQ(ask("GET", target, "", "Authorization: Bearer secret\r\n").status, 401);
    EXPECT_NE(ask("GET", target, "", "Authorization: Bearer root\r\n").status, 401);
  }
}

TEST_F(ServiceTest, WithoutKvEventsThereAreNoEndpointsForThem) {
  EXPECT_EQ(ask("GET", "/v1/kv_events/snapshot").status, 404);
  EXPECT_EQ(ask("GET", "/v1/kv_events").status, 404);
}

class SharedPromptServiceTest : public ServiceTest {
 protected:
  SharedPromptServiceTest() {
    finish();
    start({.model = "m",
           .max_sequence = 64,
           .max_queue = 8,
           .record_class = "ab",
           .context_requests = &names_,
           .opaque_state = [](const Exchange&) { return std::string("1;127.0.0.1:9;t;ab;;"); }});
  }
  // The names must outlive the serving thread.
  ~SharedPromptServiceTest() override {
    finish();
    start({.model = "m"});
  }

  static json context_only(int64_t id) {
    return {{"request_type", "context_only"}, {"disagg_request_id", id}};
  }
  Reply generate_from(const std::string& state, const json& more = json::object()) {
    json params = {{"request_type", "generation_only"},
                   {"ctx_request_id", 12},
                   {"encoded_opaque_state", state}};
    params.update(more);
    return complete({{"model", "m"},
                     {"prompt", "Count."},
                     {"max_tokens", 4},
                     {"temperature", 0},
                     {"disaggregated_params", params}});
  }

  ContextRequests names_;
};

// The one token is the first of the answer, whatever the body wants of it.
TEST_F(SharedPromptServiceTest, ContextOnlyIsOneTokenAndWhereThePagesAre) {
  const json messages = {{{"role", "user"}, {"content", "Hi"}}};
  const int32_t first = tokenizer_.encode(kText, false).front();
  const std::pair<const char*, json> kRequests[] = {
      {"/v1/completions", {{"prompt", "Count."}, {"max_tokens", 40}, {"min_tokens", 9}}},
      {"/v1/chat/completions", {{"messages", messages}, {"max_completion_tokens", -1}}},
      {"/v1/responses", {{"input", "Hi"}, {"store", true}}},
      {"/v1/messages", {{"messages", messages}, {"max_tokens", 30}}}};
  int64_t id = 100;
  for (auto [path, body] : kRequests) {
    SCOPED_TRACE(path);
    body["model"] = "m";
    body["disaggregated_params"] = context_only(++id);
    const Reply reply = ask("POST", path, body.dump());
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(backend_.last_request.max_tokens, 1);
    EXPECT_EQ(backend_.last_request.peer, "");
    const json whole = reply.body_json();
    const bool is_openai = whole.contains("choices");
    const json params = (is_openai ? whole["choices"][0] : whole)["disaggregated_params"];
    EXPECT_EQ(params["request_type"], "context_only");
    EXPECT_EQ(params["ctx_request_id"], id);
    EXPECT_EQ(params["disagg_request_id"], id);
    EXPECT_EQ(params["encoded_opaque_state"], "1;127.0.0.1:9;t;ab;;");
    EXPECT_EQ(params["first_gen_tokens"], json::array({first}));
    EXPECT_EQ(names_.state_of(std::to_string(id)), store::RequestState::kEnded);
    if (is_openai) {
      EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
      EXPECT_EQ(whole["prompt_token_ids"], backend_.last_request.prompt.ids());
      EXPECT_EQ(whole["usage"]["completion_tokens"], 1);
    }
  }
  const json response = ask("POST", "/v1/responses",
                            json{{"model", "m"},
                                 {"input", "Hi"},
                                 {"store", true},
                                 {"disaggregated_params", context_only(1)}}
                                .dump())
                            .body_json();
  EXPECT_EQ(response["store"], false);
  EXPECT_EQ(ask("GET", "/v1/responses/" + response["id"].get<std::string>()).status, 404);
}

TEST_F(SharedPromptServiceTest, NamesThatClientsDoNotGiveAreDrawn) {
  std::set<int64_t> ids;
  for (int i = 0; i < 3; ++i) {
    const json reply = complete({{"model", "m"},
                                 {"prompt", "x"},
                                 {"disaggregated_params", {{"request_type", "context_only"}}}})
                           .body_json();
    ids.insert(reply["choices"][0]["disaggregated_params"]["ctx_request_id"].get<int64_t>());
  }
  const json vllm =
      complete(
          {{"model", "m"}, {"prompt", "x"}, {"kv_transfer_params", {{"do_remote_decode", true}}}})
          .body_json()["kv_transfer_params"];
  EXPECT_EQ(vllm["remote_engine_id"], "t;ab;");
  EXPECT_EQ(vllm["remote_host"], "127.0.0.1");
  EXPECT_EQ(vllm["remote_port"], 9);
  ids.insert(std::stoll(vllm["remote_request_id"].get<std::string>()));
  EXPECT_EQ(ids.size(), 4u);
  for (const int64_t id : ids) {
    EXPECT_LT(id, int64_t{1} << 53);
    EXPECT_EQ(names_.state_of(std::to_string(id)), store::RequestState::kEnded);
  }
  // As it is, the other server reads it.
  ASSERT_EQ(complete({{"model", "m"}, {"prompt", "x"}, {"kv_transfer_params", vllm}}).status, 200);
  EXPECT_EQ(backend_.last_request.peer,
            "1;127.0.0.1:9;t;ab;" + vllm["remote_request_id"].get<std::string>() + ";");
}

TEST_F(SharedPromptServiceTest, ANameRunsUntilItsClientLeaves) {
  backend_.max_tokens = 0;  // the prompt takes long
  const std::string body =
      json{{"model", "m"}, {"prompt", "x"}, {"disaggregated_params", context_only(5)}}.dump();
  {
    Socket socket(server_->port());
    socket.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    while (names_.state_of("5") == store::RequestState::kUnknown) std::this_thread::yield();
    EXPECT_EQ(names_.state_of("5"), store::RequestState::kComputes);
  }
  for (int i = 0; i < 1000 && names_.num_running() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(names_.state_of("5"), store::RequestState::kEnded);
  EXPECT_EQ(backend_.cancelled, 1);
}

TEST_F(SharedPromptServiceTest, ANameEndsWhereTheRanksFail) {
  backend_.max_tokens = 0;
  const auto reply = std::async(std::launch::async, [&] {
    return complete({{"model", "m"}, {"prompt", "x"}, {"disaggregated_params", context_only(5)}});
  });
  while (names_.num_running() == 0) std::this_thread::yield();
  on_server([&] { return service_->fail("the ranks have ended"); });
  reply.wait();
  EXPECT_EQ(names_.state_of("5"), store::RequestState::kEnded);
}

TEST_F(SharedPromptServiceTest, GenerationOnlyIsAnOrdinaryAnswerThatHasAPeer) {
  const auto shown = [](const Reply& reply) {
    json body = reply.body_json();
    for (const char* name : {"id", "created"}) body.erase(name);
    return body;
  };
  backend_.cached_tokens = 2;
  const Reply reply = generate_from("1;127.0.0.1:9;t;ab;;");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(backend_.last_request.peer, "1;127.0.0.1:9;t;ab;12;");
  const Reply plain =
      complete({{"model", "m"}, {"prompt", "Count."}, {"max_tokens", 4}, {"temperature", 0}});
  EXPECT_EQ(backend_.last_request.peer, "");
  EXPECT_EQ(shown(reply), shown(plain));
  EXPECT_EQ(shown(reply)["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

// It computes what is not there; pages come only from whom it trusts.
TEST_F(SharedPromptServiceTest, ContextOnlyMayHaveAPeerThatComputesNothing) {
  json params = context_only(7);
  const auto compute_with = [&](const std::string& state) {
    params["encoded_opaque_state"] = state;
    return complete({{"model", "m"}, {"prompt", "Count."}, {"disaggregated_params", params}});
  };
  const Reply reply = compute_with("1;127.0.0.1:8;u;ab;;");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(backend_.last_request.peer, "1;127.0.0.1:8;u;ab;;");
  const json told = reply.body_json()["choices"][0]["disaggregated_params"];
  EXPECT_EQ(told["encoded_opaque_state"], "1;127.0.0.1:9;t;ab;;");  // its own
  EXPECT_EQ(told["ctx_request_id"], 7);
}

TEST_F(SharedPromptServiceTest, AnotherClassIsRefusedWithBoth) {
  const Reply reply = generate_from("1;127.0.0.1:9;t;cd;;");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.body_json()["error"]["message"],
            "disaggregated_params: this server and the other one differ in "
            "model, checkpoint, KV format, class of bits or version: expected class ab, found cd");
  finish();
  start({.model = "m", .max_sequence = 64});  // shares no pages
  EXPECT_EQ(generate_from("1;127.0.0.1:9;t;cd;;").status, 200);
  EXPECT_EQ(backend_.last_request.peer, "");
}

TEST_F(SharedPromptServiceTest, OnlyServersOfThisMachineAreTrustedWithoutAKey) {
  for (const char* host : {"10.0.0.1", "example.org"}) {
    const Reply reply = generate_from(fmt::format("1;{}:9;t;ab;;", host));
    EXPECT_EQ(reply.status, 400);
    const json error = reply.body_json()["error"];
    EXPECT_EQ(error["param"], "disaggregated_params");
    EXPECT_EQ(
        error["message"],
        fmt::format("disaggregated_params: the server {}:9 is on another machine: all servers "
                    "need the same --page-key-file",
                    host));
  }
  const json vllm = {{"do_remote_prefill", true},
                     {"remote_engine_id", "t;ab;"},
                     {"remote_request_id", "1"},
                     {"remote_host", "10.0.0.1"},
                     {"remote_port", 9}};
  const Reply reply = complete({{"model", "m"}, {"prompt", "x"}, {"kv_transfer_params", vllm}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.body_json()["error"]["param"], "kv_transfer_params");
}

// A bad one costs only that they are computed, and a line says so.
TEST_F(SharedPromptServiceTest, PagesOfAnEarlierServerAreTakenOnlyWhereTheyCanBe) {
  const auto peer_with = [&](const std::string& state) {
    json params = context_only(1);
    params["encoded_opaque_state"] = state;
    const Reply reply =
        complete({{"model", "m"}, {"prompt", "Count."}, {"disaggregated_params", params}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    return backend_.last_request.peer;
  };
  testing::internal::CaptureStderr();
  EXPECT_EQ(peer_with("1;127.0.0.1:9;t;ab;;"), "1;127.0.0.1:9;t;ab;;");
  EXPECT_EQ(peer_with("1;10.0.0.1:9;t;ab;;"), "");
  EXPECT_EQ(peer_with("1;10.0.0.1:9;t;ab;;"), "");
  EXPECT_EQ(peer_with("1;127.0.0.1:9;t;cd;;"), "");
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("did not come from 10.0.0.1:9, "));
  EXPECT_THAT(log, HasSubstr("all servers need the same --page-key-file"));
  EXPECT_EQ(log.find("10.0.0.1:9, "), log.rfind("10.0.0.1:9, "));
  EXPECT_THAT(log, HasSubstr("expected class ab, found cd"));
}

TEST_F(SharedPromptServiceTest, WithAKeyWhoHasItIsTrusted) {
  const std::string key = "a key of the servers";
  finish();
  start({.model = "m", .max_sequence = 64, .record_class = "ab", .page_key = key});
  store::PagePeer peer{.host = {.name = "10.0.0.1", .port = 9}, .token = "t", .record_class = "ab"};
  for (const auto& [mac, status] : {std::pair(store::PageTrust(key).sign(peer), 200),
                                    {store::PageTrust("another key").sign(peer), 400},
                                    {std::string(), 400}}) {
    peer.mac = mac;
    const Reply reply = generate_from(store::text_of(peer));
    EXPECT_EQ(reply.status, status) << reply.body;
    peer.request = "1";
    const json vllm = {{"do_remote_prefill", true},
                       {"remote_engine_id", "t;ab;" + mac},
                       {"remote_request_id", "1"},
                       {"remote_host", "10.0.0.1"},
                       {"remote_port", 9}};
    EXPECT_EQ(complete({{"model", "m"}, {"prompt", "x"}, {"kv_transfer_params", vllm}}).status,
              status);
    if (status == 200) EXPECT_EQ(backend_.last_request.peer, store::text_of(peer));
    peer.request = "";
  }
}

TEST_F(SharedPromptServiceTest, FirstTokensThatDifferAreCounted) {
  const auto differing = [&] {
    return on_server([&] { return service_->metrics().differing_first_tokens; });
  };
  const std::vector<int32_t> own = tokenizer_.encode(kText, false);
  EXPECT_EQ(generate_from("1;127.0.0.1:9;t;ab;;", {{"first_gen_tokens", {own[0], own[1]}}}).status,
            200);
  EXPECT_EQ(differing(), 0u);
  testing::internal::CaptureStderr();
  const Reply other =
      generate_from("1;127.0.0.1:9;t;ab;;", {{"first_gen_tokens", {own[0], own[0], own[0]}}});
  EXPECT_EQ(other.body_json()["choices"][0]["text"],
            generate_from("1;127.0.0.1:9;t;ab;;").body_json()["choices"][0]["text"]);
  EXPECT_EQ(differing(), 1u);
  EXPECT_THAT(ask("GET", "/metrics").body,
              HasSubstr("\nwideep_disaggregated_first_token_differs_total 1\n"));
  // The tokens may be anybody's: what they say fills no log.
  generate_from("1;127.0.0.1:9;t;ab;;", {{"first_gen_tokens", {own[1]}}});
  EXPECT_EQ(differing(), 2u);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log,
              HasSubstr("http: token 1 of an answer whose prompt another server has computed"));
  EXPECT_EQ(log.find("http: token "), log.rfind("http: token "));
  const Reply unknown = generate_from("1;127.0.0.1:9;t;ab;;", {{"first_gen_tokens", {1 << 30}}});
  EXPECT_EQ(unknown.status, 400);
  EXPECT_THAT(unknown.body, HasSubstr("disaggregated_params.first_gen_tokens: the model has no "
                                      "token 1073741824"));
}

TEST_F(SharedPromptServiceTest, AChatsTokensHaveToBeThoseOfItsMessages) {
  json body = {{"model", "m"},
               {"messages", {{{"role", "user"}, {"content", "Hi"}}}},
               {"disaggregated_params", context_only(1)}};
  const json ids = chat(body).body_json()["prompt_token_ids"];
  body["disaggregated_params"] = {{"request_type", "generation_only"}};
  body["prompt_token_ids"] = ids;
  EXPECT_EQ(chat(body).status, 200);
  body["prompt_token_ids"][1] = 9;
  const Reply reply = chat(body);
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("of which token 1 is the first other one"));
}

// The ranks hear of roles when a test says so, and time passes likewise.
class RolesTest : public ServiceTest {
 protected:
  RolesTest() : memory_(RoleMemory::create(engine::Role::kPrefill).value()) {
    finish();
    ServiceOptions options{.model = "m", .max_sequence = 64, .max_queue = 8};
    options.record_class = "00ff";
    options.opaque_state = [](const Exchange& exchange) { return "at " + exchange.local_host(); };
    options.role = &memory_;
    options.context_requests = &names_;
    options.pages_given = &given_;
    start(options);
    on_server([&] {
      begin();
      return 0;
    });
  }
  void begin() {
    service_->pd().begin(
        {.change =
             [this](engine::Role role) {
               told_.push_back(role);
               return static_cast<int>(told_.size());
             },
         .prompt_tokens = [] { return 77; },
         .peer_waits = [] { return run::PeerWaits{.requests = 2, .pages = 30}; },
         .call_in = [this](int, auto call) { later_.push_back(std::move(call)); }});
  }
  void seen(int number) {
    on_server([&] {
      service_->pd().seen({.number = number});
      return 0;
    });
  }
  std::future<Reply> switch_to(const std::string& name) {
    const size_t before = on_server([&] { return told_.size(); });
    auto reply = std::async(std::launch::async, [this, name] {
      return ask("POST", "/pd_role_switch", json({{"new_role", name}}).dump());
    });
    while (on_server([&] { return told_.size(); }) == before) std::this_thread::yield();
    return reply;
  }
  json role() { return ask("GET", "/v1/pd_role").body_json(); }

  RoleMemory memory_;
  ContextRequests names_;
  store::PageServerCounts given_;
  std::vector<engine::Role> told_;
  std::vector<std::function<void()>> later_;
};

TEST_F(RolesTest, AreTold) {
  json state = role();
  EXPECT_EQ(state["role"], "prefill");
  EXPECT_EQ(state["epoch"], 1);
  EXPECT_EQ(state["seen_by"], 0);
  seen(1);
  state = role();
  EXPECT_EQ(state["seen_by"], state["ranks"]);
  EXPECT_EQ(state["instance"], memory_.instance());
  EXPECT_EQ(state["model"], "m");
  EXPECT_EQ(state["record_class"], "00ff");
  EXPECT_EQ(state["encoded_opaque_state"], "at 127.0.0.1");
  const json load = {{"prompt_tokens", 77},
                     {"running", 0},
                     {"prefill_seconds_per_token", nullptr},
                     {"iteration_seconds", nullptr},
                     {"kv_share", 0.0},
                     {"pages_per_second", nullptr},
                     {"max_context", 64}};
  EXPECT_EQ(state["load"], load);
  EXPECT_THAT(ask("GET", "/metrics").body, HasSubstr("\nwideep_role{role=\"prefill\"} 1\n"));
  EXPECT_EQ(told_, (std::vector<engine::Role>{engine::Role::kPrefill}));
}

TEST_F(RolesTest, PagesOnTheirWayAreShown) {
  names_.begin("7");
  given_.records = 12;
  given_.bytes = 4096;
  on_server([&] {
    const run::PeerPages came{.pages = 5,
                              .bytes = 80,
                              .seconds = 0.5,
                              .transfer_seconds = 0.375,
                              .exposed_seconds = 0.125,
                              .trouble = ""};
    service_->pd().transferred({.fetched_pages = 5, .from_peer = came}, "", 1.0);
    return 0;
  });
  const json expected = {{"role", "prefill"},
                         {"computing", 1},
                         {"awaited", 2},
                         {"arrived", 30},
                         {"taken",
                          {{"whole", 1},
                           {"part", 0},
                           {"none", 0},
                           {"pages", 5},
                           {"bytes", 80},
                           {"seconds_hidden", 0.25},
                           {"seconds_not_hidden", 0.125}}},
                         {"given", {{"pages", 12}, {"bytes", 4096}}}};
  EXPECT_EQ(ask("GET", "/dashboard/data").body_json()["page_sharing"], expected);
  EXPECT_EQ(role()["load"]["pages_per_second"], 5 / 0.375);
  const std::string metrics = ask("GET", "/metrics").body;
  for (const char* line : {"\nwideep_prompts_computed_for_others 1\n",
                           "\nwideep_prompts_awaited 2\n", "\nwideep_prompt_pages_arrived 30\n"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
}

TEST_F(ServiceTest, WhereThePagesAreIsForWhoMayAdministrate) {
  finish();
  ServiceOptions options{.model = "m", .api_key = "api", .admin_key = "root", .max_sequence = 64};
  options.opaque_state = [](const Exchange&) { return std::string("there"); };
  start(options);
  const auto state_for = [&](const std::string& key) {
    return ask("GET", "/v1/pd_role", "", "Authorization: Bearer " + key + "\r\n").body_json();
  };
  EXPECT_EQ(state_for("root")["encoded_opaque_state"], "there");
  EXPECT_EQ(state_for("api")["encoded_opaque_state"], nullptr);
  EXPECT_EQ(state_for("api")["role"], "both");
}

TEST_F(RolesTest, ChangeWhenAllRanksHaveHeardOfThem) {
  auto first = switch_to("decode");
  seen(1);  // an earlier one
  EXPECT_FALSE(on_server([&] { return service_->has_answered(); }));
  auto second = switch_to("both");
  seen(3);  // with which the one before was heard, too
  const Reply answers[] = {first.get(), second.get()};
  EXPECT_EQ(answers[0].status, 200);
  EXPECT_EQ(answers[0].body_json()["previous_role"], "prefill");
  EXPECT_EQ(answers[1].body_json()["previous_role"], "decode");
  for (const Reply& each : answers) {
    EXPECT_EQ(each.body_json()["role"], "both");
    EXPECT_EQ(each.body_json()["epoch"], 3);
    EXPECT_EQ(each.body_json()["seen_by"], each.body_json()["ranks"]);
  }
  EXPECT_TRUE(on_server([&] { return service_->has_answered(); }));
}

TEST_F(RolesTest, WhoWaitsForTooLongIsToldOfWhat) {
  auto reply = switch_to("decode");
  on_server([&] {
    later_.back()();
    return 0;
  });
  const Reply late = reply.get();
  EXPECT_EQ(late.status, 503);
  EXPECT_THAT(late.body, HasSubstr("epoch 2 is not seen by all ranks"));
  EXPECT_EQ(role()["role"], "decode");
  seen(2);  // nobody waits any more
  EXPECT_EQ(role()["epoch"], 2);
}

TEST_F(RolesTest, OthersAreRefused) {
  for (const char* body : {R"({"new_role": "draft"})", R"({"new_role": 1})", "{}", "decode",
                           R"({"new_role": "both", "drain": true})"}) {
    const Reply refused = ask("POST", "/pd_role_switch", body);
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_THAT(refused.body, HasSubstr("expected {\\\"new_role\\\": "));
  }
  EXPECT_EQ(ask("POST", "/v1/pd_role").status, 405);
  EXPECT_EQ(role()["epoch"], 1);
}

// As where the process that serves has died.
TEST_F(RolesTest, GoOnInAnotherProcess) {
  auto reply = switch_to("decode");
  seen(2);
  EXPECT_EQ(reply.get().status, 200);
  on_server([&] {
    begin();
    return 0;
  });
  EXPECT_EQ(role()["role"], "decode");
  EXPECT_EQ(role()["epoch"], 2);
  EXPECT_EQ(role()["seen_by"], 0);
  EXPECT_EQ(told_.back(), engine::Role::kDecode);
}

TEST_F(ServiceTest, WithoutRanksToTellTheRoleIsBoth) {
  EXPECT_EQ(ask("GET", "/v1/pd_role").body_json()["role"], "both");
  EXPECT_EQ(ask("GET", "/v1/pd_role").body_json()["encoded_opaque_state"], nullptr);
  EXPECT_EQ(ask("GET", "/dashboard/data").body_json()["page_sharing"], nullptr);
  EXPECT_EQ(ask("POST", "/pd_role_switch", R"({"new_role": "decode"})").status, 400);
}

}  // namespace
}  // namespace wideep::server
