// SPDX-License-Identifier: Apache-2.0
//
// RouterOptions::disaggregation over real sockets, with servers that say what they are, and reply,
// as the test wants.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/router_testing.h"
#include "server/stream_records.h"

namespace wideep::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Its answer is its name.
class PdWorker {
 public:
  PdWorker(std::string name, const std::string& role)
      : name_(std::move(name)),
        state_({{"role", role},
                {"instance", name_},
                {"version", "1"},
                {"record_class", "ab"},
                {"encoded_opaque_state", "1;127.0.0.1:1;" + name_ + ";ab;;"}}),
        replica_([this](const auto& exchange) { handle(exchange); }) {}

  int port() const { return replica_.port(); }
  TestReplica& replica() { return replica_; }
  // Of what it says of itself.
  void set(const std::string& member, const json& value) {
    const std::lock_guard lock(mutex_);
    state_[member] = value;
  }
  void reply_with(int status, const std::string& text) {
    const std::lock_guard lock(mutex_);
    status_ = status;
    reply_ = text;
  }
  // Requests for text wait until let_go() or drop().
  void hold() { holds_ = true; }
  void let_go() {
    holds_ = false;
    replica_.server().post([this] {
      for (const auto& each : held_) answer(each);
      held_.clear();
    });
  }
  // Replies are streams, whose head comes at once.
  void stream() { streams_ = true; }
  // Their connections end without a whole reply.
  void drop() {
    holds_ = false;
    replica_.server().post([this] {
      for (const auto& each : held_) each->start_stream("text/plain");
      held_.clear();
    });
  }
  int num_texts() const { return num_texts_; }
  int num_gone() const { return num_gone_; }  // held ones whose client has left
  std::string body(size_t request) const {
    const std::lock_guard lock(mutex_);
    return request < bodies_.size() ? bodies_[request] : "{}";
  }
  json params(size_t request) const {
    const json whole = json::parse(body(request));
    return whole.value("disaggregated_params", json());
  }
  std::string header(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return headers_.value(name, "");
  }

 private:
  void handle(const std::shared_ptr<Exchange>& exchange) {
    {
      const std::lock_guard lock(mutex_);
      if (exchange->path() == "/v1/pd_role") {
        const bool is_told = !state_.is_null();
        return exchange->reply(is_told ? 200 : 404, "application/json", state_.dump());
      }
      if (exchange->path() != "/v1/completions") {
        return exchange->reply(404, "application/json", "{}");
      }
      bodies_.push_back(exchange->body());
      for (const char* each : {"authorization", "x-request-id", "traceparent", "content-encoding",
                               "x-wideep-resume"}) {
        headers_[each] = exchange->header(each);
      }
    }
    ++num_texts_;
    if (streams_) {
      exchange->start_stream("text/event-stream");
      const bool is_new = exchange->header(kResumeHeader).empty();
      exchange->send((is_new ? record_comment("head") : "") + "data: of whom\n\n");
    }
    if (!holds_) return answer(exchange);
    exchange->on_gone([this] { ++num_gone_; });
    held_.push_back(exchange);
  }
  void answer(const std::shared_ptr<Exchange>& exchange) {
    if (streams_) {
      exchange->send(record_comment("token") + "data: " + name_ + "\n\n");
      return exchange->end();
    }
    const std::lock_guard lock(mutex_);
    exchange->reply(status_, "application/json", reply_.empty() ? name_ : reply_);
  }

  const std::string name_;
  std::atomic<int> num_texts_ = 0, num_gone_ = 0;
  std::atomic<bool> holds_ = false, streams_ = false;
  mutable std::mutex mutex_;
  json state_, headers_ = json::object();        // guarded by mutex_
  int status_ = 200;                             // guarded by mutex_
  std::string reply_;                            // guarded by mutex_
  std::vector<std::string> bodies_;              // guarded by mutex_
  std::vector<std::shared_ptr<Exchange>> held_;  // of the replica's thread
  TestReplica replica_;                          // last: its thread uses the members above
};

class RouterPdTest : public RoutedTest {
 protected:
  // Waits until every server has said what it is.
  void route_to(const std::vector<const PdWorker*>& workers, DisaggregationOptions options) {
    std::vector<int> ports;
    for (const PdWorker* each : workers) ports.push_back(each->port());
    route({.http = {.port = 0}, .replicas = {}, .disaggregation = options}, ports);
    for (const PdWorker* each : workers) {
      ASSERT_TRUE(comes([&] { return role_of(*each) != "both"; }));
    }
  }
  std::string role_of(const PdWorker& worker) const {
    const std::string text = ask(router_->port(), "GET", "/metrics").body;
    const std::string line =
        fmt::format("wideep_router_role{{replica=\"http://127.0.0.1:{}\",role=\"", worker.port());
    const size_t at = text.find(line);
    if (at == text.npos) return "";
    return text.substr(at + line.size(), text.find('"', at + line.size()) - at - line.size());
  }
  Reply post(const std::string& body, const std::string& headers = "") const {
    return ask(router_->port(), "POST", "/v1/completions", body, headers);
  }
  std::future<Reply> post_later(const std::string& body) const {
    return std::async(std::launch::async, [this, body] { return post(body); });
  }
  static std::string request(const std::string& more = "") {
    return "{" + more + R"("prompt": ")" + std::string(4000, 'a') + "\"}";
  }
  // Of which nobody knows a beginning.
  std::string new_request() {
    return fmt::format(R"({{"prompt": "{} {}"}})", ++num_prompts_, std::string(4000, 'a'));
  }

  static constexpr DisaggregationOptions kAlways = {.always = true};
  int num_prompts_ = 0;
  PdWorker p_{"p", "prefill"}, q_{"q", "prefill"}, d_{"d", "decode"}, e_{"e", "decode"};
};

TEST_F(RouterPdTest, BothServersAreAskedAtOnceUnderOneName) {
  p_.hold();
  d_.hold();
  route_to({&p_, &d_}, kAlways);
  const std::string body = request(R"("stream": false, "seed": 7, )");
  auto reply = std::async(std::launch::async, [&] {
    return post(body, "Authorization: Bearer k\r\nX-Request-Id: mine\r\ntraceparent: t\r\n");
  });
  ASSERT_TRUE(comes([&] { return p_.num_texts() == 1 && d_.num_texts() == 1; }));
  const json context = p_.params(0), generation = d_.params(0);
  EXPECT_EQ(context["request_type"], "context_only");
  EXPECT_EQ(generation["request_type"], "generation_only");
  EXPECT_EQ(context["disagg_request_id"], generation["disagg_request_id"]);
  EXPECT_EQ(generation["ctx_request_id"], generation["disagg_request_id"]);
  EXPECT_EQ(generation["encoded_opaque_state"], "1;127.0.0.1:1;p;ab;;");
  EXPECT_EQ(generation["schedule_style"], "generation_first");
  EXPECT_EQ(p_.body(0).find("stream\""), std::string::npos);
  EXPECT_TRUE(d_.body(0).ends_with(body.substr(1)));
  for (const PdWorker* each : {&p_, &d_}) {
    EXPECT_EQ(each->header("authorization"), "Bearer k");
    EXPECT_EQ(each->header("x-request-id"), "mine");
    EXPECT_EQ(each->header("traceparent"), "t");
  }
  EXPECT_EQ(value("prefills_running", p_.port()), "1");
  EXPECT_EQ(value("requests_running", d_.port()), "1");
  EXPECT_NE(value("work_bytes", p_.port()), "0");
  EXPECT_EQ(value("work_bytes", d_.port()), "4096");  // the answer's
  d_.let_go();
  EXPECT_EQ(reply.get().body, "d");
  // Nobody needs the rest of the prompt.
  EXPECT_TRUE(comes([&] { return p_.num_gone() == 1; }));
  EXPECT_EQ(value("prefills_running", p_.port()), "0");
  EXPECT_EQ(value("work_bytes", p_.port()), "0");
  EXPECT_EQ(value("work_bytes", d_.port()), "0");
  EXPECT_EQ(value("prompts_divided_total", d_.port()), "1");
  p_.let_go();
}

// As the answering server does from the second turn of a conversation on.
TEST_F(RouterPdTest, ThePrefillServerIsToldWhoKnowsMoreOfThePrompt) {
  for (const ScheduleStyle style :
       {ScheduleStyle::kGenerationFirst, ScheduleStyle::kContextFirst}) {
    DisaggregationOptions options = kAlways;
    options.style = style;
    route_to({&p_, &d_}, options);
    const std::string prompt = fmt::format("{} {}", ++num_prompts_, std::string(4000, 'a'));
    // Nobody divides it.
    EXPECT_EQ(post(json{{"n", 2}, {"prompt", prompt}}.dump()).body, "d");
    const std::string turn = json{{"prompt", prompt + std::string(1000, 'b')}}.dump();
    // What the prefill server is told of it.
    const auto divided = [&] {
      const int before = p_.num_texts();
      d_.hold();
      auto reply = post_later(turn);
      EXPECT_TRUE(comes([&] { return p_.num_texts() == before + 1; }));
      d_.let_go();
      EXPECT_EQ(reply.get().body, "d");
      return p_.params(static_cast<size_t>(before));
    };
    const json first = divided();
    EXPECT_EQ(first["request_type"], "context_only");
    EXPECT_EQ(first["encoded_opaque_state"], "1;127.0.0.1:1;d;ab;;");
    EXPECT_FALSE(first.contains("ctx_request_id"));
    EXPECT_EQ(d_.params(static_cast<size_t>(d_.num_texts()) - 1)["encoded_opaque_state"],
              "1;127.0.0.1:1;p;ab;;");
    EXPECT_FALSE(divided().contains("encoded_opaque_state"));  // now both know as much
    end();
  }
}

TEST_F(RouterPdTest, ContextFirstTellsWhatThePrefillServerSays) {
  p_.hold();
  p_.reply_with(200, R"({"choices": [{"text": "", "disaggregated_params": {
      "request_type": "context_only", "first_gen_tokens": [5], "ctx_request_id": 12,
      "encoded_opaque_state": "1;x:1;t;ab;;", "conversation_id": "c"}}]})");
  DisaggregationOptions options = kAlways;
  options.style = ScheduleStyle::kContextFirst;
  route_to({&p_, &d_}, options);
  auto reply = post_later(request());
  ASSERT_TRUE(comes([&] { return p_.num_texts() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(d_.num_texts(), 0);
  p_.let_go();
  EXPECT_EQ(reply.get().body, "d");
  EXPECT_EQ(d_.params(0), json({{"request_type", "generation_only"},
                                {"first_gen_tokens", {5}},
                                {"ctx_request_id", 12},
                                {"encoded_opaque_state", "1;x:1;t;ab;;"},
                                {"conversation_id", "c"}}));
  // One that says nothing of it is known all the same.
  p_.reply_with(200, "{}");
  EXPECT_EQ(post(request()).body, "d");
  EXPECT_EQ(d_.params(1)["encoded_opaque_state"], "1;127.0.0.1:1;p;ab;;");
  EXPECT_EQ(d_.params(1)["ctx_request_id"], p_.params(1)["disagg_request_id"]);
  EXPECT_EQ(d_.params(1)["schedule_style"], "context_first");
}

TEST_F(RouterPdTest, ARefusedPromptGoesToAnotherServerOrToNone) {
  p_.reply_with(429, "{}");
  d_.hold();
  route_to({&p_, &q_, &d_}, kAlways);
  for (size_t i = 0; i < 2; ++i) {  // whichever comes first
    const int before = d_.num_texts(), computed = q_.num_texts();
    auto reply = post_later(request());
    ASSERT_TRUE(comes([&] { return q_.num_texts() > computed && d_.num_texts() > before; }));
    ASSERT_TRUE(comes([&] {
      return d_.params(static_cast<size_t>(d_.num_texts()) - 1)["encoded_opaque_state"] ==
             "1;127.0.0.1:1;q;ab;;";
    }));
    EXPECT_EQ(value("requests_running", d_.port()), "1");
    d_.let_go();
    EXPECT_EQ(reply.get().body, "d");
    d_.hold();
  }
  EXPECT_GE(p_.num_texts(), 1);
  // Now both refuse.
  q_.reply_with(503, "{}");
  auto reply = post_later(request());
  ASSERT_TRUE(comes([&] {
    const int count = d_.num_texts();
    return count > 0 && d_.params(static_cast<size_t>(count) - 1).is_null();
  }));
  d_.let_go();
  EXPECT_EQ(reply.get().body, "d");
  EXPECT_GE(std::stoi(value("prefill_failures_total", q_.port())), 1);
}

TEST_F(RouterPdTest, ContextFirstGoesOnWithoutServersThatRefuse) {
  p_.reply_with(503, "{}");
  q_.reply_with(429, "{}");
  DisaggregationOptions options = kAlways;
  options.style = ScheduleStyle::kContextFirst;
  route_to({&p_, &q_, &d_}, options);
  EXPECT_EQ(post(request()).body, "d");
  EXPECT_EQ(p_.num_texts() + q_.num_texts(), 2);
  EXPECT_TRUE(d_.params(0).is_null());
  EXPECT_EQ(d_.body(0), request());
}

// It keeps the pages that came.
TEST_F(RouterPdTest, APrefillServerThatDiesIsReplacedOrDoneWithout) {
  p_.hold();
  d_.hold();
  route_to({&p_, &d_}, kAlways);
  auto reply = post_later(request());
  ASSERT_TRUE(comes([&] { return p_.num_texts() == 1 && d_.num_texts() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // it is known to be connected
  p_.drop();
  ASSERT_TRUE(comes([&] { return value("prefills_running", p_.port()) == "0"; }));
  EXPECT_EQ(d_.num_texts(), 1);
  EXPECT_EQ(d_.num_gone(), 0);
  d_.let_go();
  EXPECT_EQ(reply.get().body, "d");
  EXPECT_EQ(value("prefill_failures_total", p_.port()), "1");
}

TEST_F(RouterPdTest, APrefillServerThatDiesHasAnotherOneAfterIt) {
  for (PdWorker* each : {&p_, &q_, &d_}) each->hold();
  route_to({&p_, &q_, &d_}, kAlways);
  auto reply = post_later(request());
  ASSERT_TRUE(comes([&] { return p_.num_texts() + q_.num_texts() == 1 && d_.num_texts() == 1; }));
  PdWorker& first = p_.num_texts() == 1 ? p_ : q_;
  PdWorker& second = p_.num_texts() == 1 ? q_ : p_;
  first.drop();
  ASSERT_TRUE(comes([&] { return second.num_texts() == 1 && d_.num_texts() == 2; }));
  EXPECT_EQ(d_.params(1)["disagg_request_id"], second.params(0)["disagg_request_id"]);
  EXPECT_NE(d_.params(1)["disagg_request_id"], d_.params(0)["disagg_request_id"]);
  EXPECT_TRUE(comes([&] { return d_.num_gone() == 1; }));  // the request before
  d_.let_go();
  EXPECT_EQ(reply.get().body, "d");
}

// What the answering server has computed by itself meanwhile is not thrown away.
TEST_F(RouterPdTest, APrefillServerThatDiesLateHasNoneAfterIt) {
  for (PdWorker* each : {&p_, &q_, &d_}) each->hold();
  route_to({&p_, &q_, &d_}, kAlways);
  auto reply = post_later(request());
  ASSERT_TRUE(comes([&] { return p_.num_texts() + q_.num_texts() == 1 && d_.num_texts() == 1; }));
  PdWorker& first = p_.num_texts() == 1 ? p_ : q_;
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  first.drop();
  ASSERT_TRUE(comes([&] { return value("prefills_running", first.port()) == "0"; }));
  EXPECT_EQ(p_.num_texts() + q_.num_texts(), 1);
  EXPECT_EQ(d_.num_gone(), 0);
  d_.let_go();
  EXPECT_EQ(reply.get().body, "d");
  EXPECT_EQ(d_.num_texts(), 1);
}

// Its ranks may have died in the middle of the prompt.
TEST_F(RouterPdTest, APrefillServerThatFailsHasComputedAPart) {
  p_.reply_with(500, "{}");
  d_.hold();
  route_to({&p_, &d_}, kAlways);
  auto reply = post_later(request());
  ASSERT_TRUE(comes([&] { return d_.num_texts() == 1 && p_.num_texts() == 1; }));
  ASSERT_TRUE(comes([&] { return value("prefills_running", p_.port()) == "0"; }));
  d_.let_go();
  EXPECT_EQ(reply.get().body, "d");
  EXPECT_EQ(d_.num_texts(), 1);
  EXPECT_EQ(value("prefill_failures_total", p_.port()), "1");
}

// The head of its stream says nothing of the prompt: the client has it, and gets it once.
TEST_F(RouterPdTest, AStreamWithoutATokenIsBegunAgainWithAnotherPrefillServer) {
  for (PdWorker* each : {&p_, &q_, &d_}) each->hold();
  d_.stream();
  route_to({&p_, &q_, &d_}, kAlways);
  auto reply = post_later(request());
  ASSERT_TRUE(comes([&] { return p_.num_texts() + q_.num_texts() == 1 && d_.num_texts() == 1; }));
  PdWorker& first = p_.num_texts() == 1 ? p_ : q_;
  PdWorker& second = p_.num_texts() == 1 ? q_ : p_;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the client has the head
  first.reply_with(429, "{}");
  first.let_go();
  ASSERT_TRUE(comes([&] { return second.num_texts() == 1 && d_.num_texts() == 2; }));
  EXPECT_EQ(d_.header("x-wideep-resume"),
            std::to_string(d_.body(1).find_last_of('}') + 1));  // the head's record follows
  EXPECT_TRUE(comes([&] { return d_.num_gone() == 1; }));
  d_.let_go();
  EXPECT_EQ(reply.get().body, "data: of whom\n\ndata: d\n\n");
  EXPECT_EQ(value("failures_total", d_.port()), "0");
}

TEST_F(RouterPdTest, WhatIsWrongTheAnsweringServerSays) {
  for (PdWorker* each : {&p_, &d_}) each->reply_with(400, "wrong");
  for (const ScheduleStyle style :
       {ScheduleStyle::kGenerationFirst, ScheduleStyle::kContextFirst}) {
    DisaggregationOptions options = kAlways;
    options.style = style;
    route_to({&p_, &d_}, options);
    const Reply reply = post(request());
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.body, "wrong");
    end();
  }
  EXPECT_EQ(p_.num_texts(), 2);
  EXPECT_GE(d_.num_texts(), 2);  // once more where the other one was faster
}

// It would wait for the prompt.
TEST_F(RouterPdTest, WhatOnlyThePrefillServerDoesNotTakeIsAnsweredWithoutIt) {
  d_.hold();
  route_to({&p_, &d_}, kAlways);
  int before = 0;
  for (const int status : {400, 401, 404}) {
    p_.reply_with(status, "{}");
    auto reply = post_later(request());
    ASSERT_TRUE(comes([&] { return d_.num_texts() == before + 2; }));
    EXPECT_EQ(d_.params(static_cast<size_t>(before))["request_type"], "generation_only");
    EXPECT_EQ(d_.body(static_cast<size_t>(before) + 1), request());
    ASSERT_TRUE(comes([&] { return value("requests_running", d_.port()) == "1"; }));
    d_.let_go();
    EXPECT_EQ(reply.get().body, "d");
    d_.hold();
    before = d_.num_texts();
  }
  EXPECT_EQ(p_.num_texts(), 3);
  d_.let_go();
}

TEST_F(RouterPdTest, AClientThatLeavesIsNoticedByBoth) {
  p_.hold();
  d_.hold();
  route_to({&p_, &d_}, kAlways);
  const std::string body = request();
  std::optional<Socket> client;
  client.emplace(router_->port());
  client->send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(comes([&] { return p_.num_texts() == 1 && d_.num_texts() == 1; }));
  const auto left = std::chrono::steady_clock::now();
  client.reset();
  ASSERT_TRUE(comes([&] { return p_.num_gone() == 1 && d_.num_gone() == 1; }));
  EXPECT_LT(std::chrono::steady_clock::now() - left, std::chrono::seconds(1));
  EXPECT_EQ(value("requests_running", d_.port()), "0");
  EXPECT_EQ(value("prefills_running", p_.port()), "0");
  for (PdWorker* each : {&p_, &d_}) each->let_go();
}

TEST_F(RouterPdTest, AnAnsweringServerThatIsFullLeavesThePromptWhereItIs) {
  p_.hold();
  d_.reply_with(429, "full");
  e_.reply_with(429, "full");
  route_to({&p_, &d_, &e_}, kAlways);
  e_.hold();
  d_.hold();
  auto reply = post_later(request());
  ASSERT_TRUE(comes([&] { return d_.num_texts() + e_.num_texts() == 1; }));
  PdWorker& first = d_.num_texts() == 1 ? d_ : e_;
  PdWorker& second = d_.num_texts() == 1 ? e_ : d_;
  second.reply_with(200, "");
  first.let_go();
  ASSERT_TRUE(comes([&] { return second.num_texts() == 1; }));
  EXPECT_EQ(p_.num_texts(), 1);
  EXPECT_EQ(p_.num_gone(), 0);
  EXPECT_EQ(second.params(0), first.params(0));
  second.let_go();
  EXPECT_EQ(reply.get().status, 200);
  p_.let_go();
}

TEST_F(RouterPdTest, SomeRequestsAreForOneServer) {
  route_to({&p_, &d_}, kAlways);
  for (const std::string& body :
       {request(R"("disaggregated_params": null, "kv_transfer_params": null, )"),
        request(R"("prompt_logprobs": 1, )"), request(R"("n": 2, )"),
        R"({"prompt": ["b", ")" + std::string(4000, 'a') + "\"]}",
        std::string(R"({"prompt": "short"})"), "{" + request()}) {
    EXPECT_EQ(post(body).body, "d") << body;
    EXPECT_EQ(d_.body(static_cast<size_t>(d_.num_texts()) - 1), body);
  }
  EXPECT_EQ(post(request(), "Content-Encoding: gzip\r\n").body, "d");
  EXPECT_EQ(d_.header("content-encoding"), "gzip");
  EXPECT_EQ(p_.num_texts(), 0);
  EXPECT_EQ(ask(router_->port(), "POST", "/pd_role_switch", "{}").status, 404);
  EXPECT_EQ(ask(router_->port(), "GET", "/v1/pd_role").status, 404);
}

TEST_F(RouterPdTest, ClientsMayNotSayWhereAPromptIsComputed) {
  route_to({&p_, &d_}, kAlways);
  for (const char* name :
       {"disaggregated_params", "kv_transfer_params", "disaggregated\\u005fparams"}) {
    const auto reply = post(request(fmt::format(R"("{}": {{"do_remote_decode": true}}, )", name)));
    EXPECT_EQ(reply.status, 400) << name;
    EXPECT_THAT(reply.body, HasSubstr("this endpoint divides requests itself: leave "));
  }
  EXPECT_EQ(p_.num_texts() + d_.num_texts(), 0);
}

TEST_F(RouterPdTest, CostsDecideWhereNoRuleDoes) {
  for (PdWorker* each : {&p_, &d_}) each->set("load", {{"prefill_seconds_per_token", 0.001}});
  route_to({&p_, &d_}, {});
  EXPECT_EQ(post(request()).body, "d");
  EXPECT_EQ(p_.num_texts(), 0);  // nothing is gained
  EXPECT_EQ(value("prompts_alone_total", d_.port()), "1");
  d_.set("load", {{"prefill_seconds_per_token", 0.001}, {"running", 16}});
  ASSERT_TRUE(comes([&] {  // until it is asked again
    post(new_request());
    return p_.num_texts() > 0;
  }));
  EXPECT_NE(value("predicted_seconds_total", d_.port()), "0.000000");
}

TEST_F(RouterPdTest, RolesThatChangeChangeWhereRequestsGo) {
  route_to({&p_, &d_}, kAlways);
  EXPECT_EQ(post(request()).body, "d");
  p_.set("role", "decode");
  d_.set("role", "prefill");
  ASSERT_TRUE(comes([&] { return role_of(p_) == "decode" && role_of(d_) == "prefill"; }));
  p_.hold();
  auto divided = post_later(request());
  ASSERT_TRUE(comes([&] { return d_.num_texts() == 2; }));
  p_.let_go();
  EXPECT_EQ(divided.get().body, "p");
  EXPECT_EQ(d_.params(1)["request_type"], "context_only");
}

TEST_F(RouterPdTest, WithoutAnsweringServersTheOthersAnswer) {
  d_.replica().health = 503;
  route_to({&p_, &d_}, kAlways);
  ASSERT_TRUE(comes([&] { return value("replica_up", d_.port()) == "0"; }));
  EXPECT_EQ(post(request()).body, "p");
  EXPECT_TRUE(p_.params(0).is_null());
  d_.replica().health = 200;
  p_.replica().health = 503;
  ASSERT_TRUE(comes([&] {
    return value("replica_up", d_.port()) == "1" && value("replica_up", p_.port()) == "0";
  }));
  EXPECT_EQ(post(request()).body, "d");
  EXPECT_TRUE(d_.params(0).is_null());
}

TEST_F(RouterPdTest, ServersOfAnotherClassAreLeftOutUntilTheyChange) {
  e_.set("record_class", "cd");
  e_.set("encoded_opaque_state", "1;127.0.0.1:1;e;cd;;");
  route_to({&p_, &d_, &e_}, kAlways);
  ASSERT_TRUE(comes([&] { return value("group", e_.port()) == "0"; }));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(post(request()).body, "d");
  EXPECT_EQ(value("group", d_.port()), "1");
  EXPECT_EQ(ask(router_->port(), "GET", "/health").body_json()["healthy"], 2);
  // As long as the others are there.
  p_.replica().health = d_.replica().health = 503;
  ASSERT_TRUE(comes([&] { return value("group", e_.port()) == "1"; }));
  EXPECT_EQ(post(request()).body, "e");
  p_.replica().health = d_.replica().health = 200;
  ASSERT_TRUE(comes([&] { return value("group", e_.port()) == "0"; }));
  e_.set("record_class", "ab");
  ASSERT_TRUE(comes([&] { return value("group", e_.port()) == "1"; }));
  bool answers = false;  // they take turns
  EXPECT_TRUE(comes([&] { return answers = answers || post(new_request()).body == "e"; }));
}

TEST_F(RouterPdTest, ServersThatDoNotSayWhatTheyAreAnswerAlone) {
  d_.set("role", "decode");
  route({.http = {.port = 0},
         .replicas = {{.address = {"127.0.0.1", d_.port()}, .role = engine::Role::kDecode}},
         .disaggregation = kAlways},
        {});
  TestReplica plain([](const auto& exchange) {
    exchange->reply(exchange->path() == "/v1/completions" ? 200 : 404, "text/plain", "plain");
  });
  router_->set_members({{.address = {"127.0.0.1", plain.port()}}});
  ASSERT_TRUE(comes([&] { return value("replica_up", plain.port()) == "1"; }));
  EXPECT_EQ(post(request()).body, "plain");
}

TEST_F(RouterPdTest, MembersComeAndGo) {
  route_to({&p_, &d_}, kAlways);
  const auto member = [](const PdWorker& worker) {
    return RouterMember{.address = {"127.0.0.1", worker.port()}};
  };
  d_.hold();
  auto running = post_later(request());
  ASSERT_TRUE(comes([&] { return d_.num_texts() == 1; }));
  router_->set_members({member(q_), member(e_), {.address = {"nowhere.invalid", 1}}});
  ASSERT_TRUE(comes([&] { return role_of(q_) == "prefill" && role_of(e_) == "decode"; }));
  e_.hold();  // an answer that is complete ends the other request, before it has begun perhaps
  auto divided = post_later(new_request());
  ASSERT_TRUE(comes([&] { return q_.num_texts() == 1 && e_.num_texts() == 1; }));
  e_.let_go();
  EXPECT_EQ(divided.get().body, "e");
  EXPECT_EQ(q_.params(0)["request_type"], "context_only");
  EXPECT_EQ(ask(router_->port(), "GET", "/health").body_json()["replicas"], 2);
  // What runs there ends whole; then it is forgotten.
  EXPECT_EQ(value("requests_running", d_.port()), "1");
  d_.let_go();
  EXPECT_EQ(running.get().body, "d");
  ASSERT_TRUE(comes([&] { return value("requests_running", d_.port()) == "none"; }));
  ASSERT_TRUE(comes([&] { return value("requests_running", p_.port()) == "none"; }));
  router_->set_members({});
  ASSERT_TRUE(comes([&] { return ask(router_->port(), "GET", "/health").status == 503; }));
  EXPECT_THAT(post(request()).body, HasSubstr("none of the replicas answers: there is none yet"));
  router_->set_members({member(p_), member(d_)});
  ASSERT_TRUE(comes([&] { return role_of(p_) == "prefill" && role_of(d_) == "decode"; }));
  EXPECT_EQ(post(request()).body, "d");
  EXPECT_EQ(d_.params(1)["request_type"], "generation_only");
}

}  // namespace
}  // namespace wideep::server
