// SPDX-License-Identifier: Apache-2.0
//
// What costs little is done often, so that a soak meets many states of a server in a short time. No
// answer is known before: the first one to a request is what all others must equal, whoever asks,
// by whichever server and way, while other clients break off beside it. Well-formed requests of the
// table ask for pages that there are not, and need no engine. A full queue is an answer where the
// client has asked a server itself; the router has another one to ask.
#include "soak_client.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using server::Reply;
using server::RequestCase;

constexpr const char* kQueueFull = "HTTP/1.1 429 ";
constexpr int kLongAnswer = 1000;  // tokens

std::string shortened(const std::string& text) {
  constexpr size_t kMaxShown = 600;
  return text.size() <= kMaxShown ? text : text.substr(0, kMaxShown) + "…";
}

// The status of a request of the table that is well-formed. "/" is the chat page.
int status_of(const RequestCase& each, bool by_router) {
  const auto has = [&](const char* text) { return each.request.find(text) != each.request.npos; };
  if (each.request.starts_with("OPTIONS *")) return 204;
  if (has("GET / HTTP/1.") || has("GET HTTP://h HTTP/1.")) return 200;
  if (has(" / HTTP/1.")) return 405;
  return by_router && !has("GET ") && !has("POST ") ? 405 : 404;
}

// What a request of the table is answered with; −1: nothing, it is not complete.
int answer_to(const RequestCase& each, bool by_router) {
  const bool has_head = each.request.find("\r\n\r\n") != each.request.npos;
  const bool lacks_body_only = each.status == -1 && has_head && !by_router;
  return each.status == 0 || lacks_body_only ? status_of(each, by_router) : each.status;
}

// Where the head comes before the body, a server says already then that there is no such page,
// whatever the body is like.
bool may_end_at_head(const RequestCase& each, bool by_router) {
  return !by_router && std::string_view(each.rule).starts_with("7.1");
}

}  // namespace

// ---- the record ----

void SoakRecord::count(const std::string& kind) {
  const std::lock_guard lock(mutex_);
  ++counts_[kind];
}

void SoakRecord::fault(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    has_fault_ = true;
  }
  ADD_FAILURE() << what;
}

bool SoakRecord::has_fault() const {
  const std::lock_guard lock(mutex_);
  return has_fault_;
}

void SoakRecord::compare(int request, const std::string& answer, const std::string& how) {
  std::string expected;
  {
    const std::lock_guard lock(mutex_);
    const auto [first, is_new] = answers_.emplace(request, answer);
    compared_ += is_new ? 0 : 1;
    if (first->second == answer) return;
    expected = first->second;
  }
  fault(fmt::format("{}: another answer than the first time\n{}\n{}", how, expected, answer));
}

int64_t SoakRecord::compared() const {
  const std::lock_guard lock(mutex_);
  return compared_;
}

std::map<std::string, int64_t> SoakRecord::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

// ---- the client ----

void SoakClient::run_until(std::chrono::steady_clock::time_point end) {
  struct Doing {
    void (SoakClient::*what)();
    int weight;
  };
  static constexpr Doing kAll[] = {
      {&SoakClient::ask_one, 24},          {&SoakClient::ask_several, 6},
      {&SoakClient::ask_by_http_1_0, 4},   {&SoakClient::ask_and_read_slowly, 2},
      {&SoakClient::ask_pipelined, 6},     {&SoakClient::ask_with_expect, 3},
      {&SoakClient::ask_plain, 24},        {&SoakClient::send_refused, 40},
      {&SoakClient::send_any_http, 40},    {&SoakClient::send_huge, 1},
      {&SoakClient::send_byte_by_byte, 3}, {&SoakClient::leave_early, 8},
      {&SoakClient::close_one_half, 4},    {&SoakClient::open_many, 1},
  };
  int sum = 0;
  for (const Doing& each : kAll) sum += each.weight;
  while (std::chrono::steady_clock::now() < end && !record_.has_fault()) {
    int at = below(sum);
    const Doing* chosen = kAll;
    while (at >= chosen->weight) at -= (chosen++)->weight;
    choose_port();
    (this->*chosen->what)();
  }
}

void SoakClient::choose_port() {
  by_router_ = one_in(2);
  const auto server = static_cast<size_t>(below(static_cast<int>(ports_.servers.size())));
  port_ = by_router_ ? ports_.router : ports_.servers[server];
}

void SoakClient::expect_status(const Reply& reply, int status, const SoakConnection& connection,
                               const std::string& what) {
  if (reply.status == status) return;
  const char* how = connection.timed_out() ? ", no reply in time" : "";
  record_.fault(fmt::format("port {}{}: expected status {}, found {}{}\n{}\n{}{}", port_,
                            by_router_ ? " (router)" : "", status, reply.status, how,
                            shortened(what), reply.head, shortened(reply.body)));
}

void SoakClient::receive_answer(const RequestCase& each, SoakConnection& connection,
                                const std::string& what) {
  const int status = answer_to(each, by_router_);
  if (status <= 0) return;
  const Reply reply = connection.receive_reply("GET");
  if (may_end_at_head(each, by_router_) && reply.status == status_of(each, by_router_)) return;
  expect_status(reply, status, connection, what);
}

// The server has nothing more to say, and closes.
void SoakClient::expect_end(SoakConnection& connection, const std::string& what) {
  const std::string rest = connection.receive_rest();
  if (rest.empty() && !connection.timed_out()) return;
  record_.fault(fmt::format("port {}: expected the connection's end{}\n{}\nfound: {}", port_,
                            connection.timed_out() ? " in time" : "", shortened(what),
                            shortened(rest)));
}

// ---- well-behaved clients ----

std::string SoakClient::Question::text() const {
  json body = request.body;
  body["stream"] = stream ? json(true) : json();
  if (stream && index % 2 == 0) body["stream_options"] = {{"include_usage", true}};
  return body.dump();
}

SoakClient::Question SoakClient::choose_question() {
  const int index = below(kAnsweredRequests);
  return {.index = index, .stream = one_in(2), .request = answered_request(index)};
}

void SoakClient::check_answer(const Question& question, const Reply& reply,
                              const SoakConnection& connection) {
  record_.count(question.request.kind + (question.stream ? ", streamed" : ""));
  // One server has a short queue; the router then asks the other.
  if (reply.status == 429 && !by_router_) return record_.count("429, the queue is full");
  expect_status(reply, 200, connection, question.text());
  if (reply.status != 200) return;
  const std::vector<json> parts =
      question.stream ? reply.events() : std::vector<json>{reply.body_json()};
  for (const json& part : parts) {
    if (!part.contains("choices")) return record_.fault(question.text() + "\n" + reply.body);
  }
  record_.compare(question.index, lasting_part(parts),
                  fmt::format("port {}, {}", port_, question.text()));
}

void SoakClient::ask_one() {
  const Question question = choose_question();
  SoakConnection connection(port_);
  connection.send(one_in(3) ? chunked_request(question.request.path, question.text(),
                                              static_cast<size_t>(1 + below(200)))
                            : http_request("POST", question.request.path, question.text()));
  check_answer(question, connection.receive_reply("POST"), connection);
}

void SoakClient::ask_by_http_1_0() {
  const Question question = choose_question();
  const std::string body = question.text();
  SoakConnection connection(port_);
  connection.send(fmt::format("POST {} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}",
                              question.request.path, body.size(), body));
  check_answer(question, connection.receive_reply("POST"), connection);
  expect_end(connection, body);
  record_.count("HTTP/1.0");
}

void SoakClient::ask_and_read_slowly() {
  const Question question = choose_question();
  SoakConnection connection(port_);
  connection.receive_slowly();
  connection.send(http_request("POST", question.request.path, question.text()));
  check_answer(question, connection.receive_reply("POST"), connection);
  record_.count("slow readers");
}

void SoakClient::ask_several() {
  SoakConnection connection(port_);
  for (int left = 2 + below(4); left > 0; --left) {
    const Question question = choose_question();
    const bool last = left == 1;
    connection.send(http_request("POST", question.request.path, question.text(),
                                 last ? "Connection: close\r\n" : ""));
    check_answer(question, connection.receive_reply("POST"), connection);
    if (last) expect_end(connection, question.text());
  }
}

void SoakClient::ask_pipelined() {
  record_.count("pipelined");
  std::vector<Question> questions(static_cast<size_t>(1 + below(5)));
  std::string text;
  for (Question& each : questions) {
    each = choose_question();
    text += http_request("POST", each.request.path, each.text());
    text += http_request("GET", "/v1/models");
  }
  const RequestCase& last = http_requests()[rng_() % http_requests().size()];
  text += last.request;
  SoakConnection connection(port_);
  if (last.status >= 0) {
    connection.send(text);
  } else {
    connection.send_slowly(text, text.size() / 2 + 1, 1ms);
  }
  for (const Question& each : questions) {
    check_answer(each, connection.receive_reply("POST"), connection);
    expect_status(connection.receive_reply("GET"), 200, connection, "GET /v1/models");
  }
  receive_answer(last, connection, text);
  connection.send_no_more();
  expect_end(connection, text);
}

void SoakClient::ask_with_expect() {
  record_.count("Expect: 100-continue");
  const Question question = choose_question();
  const std::string body = question.text();
  SoakConnection connection(port_);
  const std::string head =
      http_request("POST", question.request.path, "", "Expect: 100-continue\r\n");
  const std::string length = fmt::format("Content-Length: {}\r\n\r\n", body.size());
  connection.send(head.substr(0, head.find("Content-Length")) + length);
  const std::string line = connection.receive();
  if (line != "HTTP/1.1 100 Continue\r\n\r\n") {
    record_.fault(fmt::format("port {}: expected 100 Continue, found {}", port_, line));
  }
  connection.send(body);
  check_answer(question, connection.receive_reply("POST"), connection);
}

void SoakClient::ask_plain() {
  const PlainRequest& plain = plain_requests()[rng_() % plain_requests().size()];
  record_.count("without the engine");
  SoakConnection connection(port_);
  const std::string request = http_request(plain.method, plain.path, "", "Connection: close\r\n");
  connection.send(request);
  expect_status(connection.receive_reply(plain.method),
                by_router_ ? plain.router_status : plain.status, connection, request);
  expect_end(connection, request);
}

// ---- requests that are refused ----

void SoakClient::send_refused() {
  SoakConnection connection(port_);
  for (int left = 1 + below(3); left > 0; --left) {
    const RefusedRequest& refused = refused_requests()[rng_() % refused_requests().size()];
    record_.count(refused.kind);
    connection.send(http_request("POST", refused.path, refused.body));
    const Reply reply = connection.receive_reply("POST");
    expect_status(reply, refused.status, connection, refused.body);
    if (reply.status != refused.status) return;
    const json error = json::parse(reply.body, nullptr, false);
    if (error.is_object() && error["error"]["message"].is_string()) continue;
    record_.fault(fmt::format("expected an error object, found {}", shortened(reply.body)));
  }
}

void SoakClient::send_huge() {
  const RefusedRequest& huge = huge_requests()[rng_() % huge_requests().size()];
  record_.count(huge.kind);
  SoakConnection connection(port_);
  connection.send(http_request("POST", huge.path, huge.body));
  expect_status(connection.receive_reply("POST"), huge.status, connection, huge.path);
}

// One reply, or none if the request has no end.
void SoakClient::send_any_http() {
  const RequestCase& each = http_requests()[rng_() % http_requests().size()];
  record_.count(each.status > 0    ? "malformed HTTP"
                : each.status == 0 ? "unusual HTTP"
                                   : "incomplete HTTP");
  const std::string what = fmt::format("{}: {}", each.rule, each.request);
  SoakConnection connection(port_);
  const size_t step = one_in(2) ? each.request.size() : static_cast<size_t>(1 + below(20));
  connection.send_slowly(each.request, step, 0us);
  receive_answer(each, connection, what);
  if (each.status <= 0) connection.send_no_more();
  expect_end(connection, what);
}

// ---- clients that leave ----

void SoakClient::send_byte_by_byte() {
  const Question question = choose_question();
  const std::string request = http_request("POST", question.request.path, question.text());
  SoakConnection connection(port_);
  const bool abandons = one_in(2);
  const size_t bytes = abandons ? rng_() % request.size() : request.size();
  connection.send_slowly(std::string_view(request).substr(0, bytes), 1, 50us);
  if (!abandons) return check_answer(question, connection.receive_reply("POST"), connection);
  record_.count("abandoned byte by byte");
}

std::string SoakClient::long_request() {
  const json body = {{"model", "m"},        {"prompt", "On and on"}, {"max_tokens", kLongAnswer},
                     {"temperature", 0},    {"n", 1 + below(3)},     {"stream", one_in(2)},
                     {"logprobs", below(2)}};
  return http_request("POST", "/v1/completions", body.dump());
}

// In the head, in the body, or during the answer.
void SoakClient::leave_early() {
  const std::string request = long_request();
  const size_t head = request.find("\r\n\r\n") + 4;
  SoakConnection connection(port_);
  if (one_in(2)) connection.reset_on_close();
  switch (below(4)) {
    case 0:
      record_.count("left in the head");
      connection.send(request.substr(0, rng_() % head));
      return;
    case 1:
      record_.count("left in the body");
      connection.send(request.substr(0, head + rng_() % (request.size() - head)));
      return;
    case 2:
      record_.count("left before the answer");
      connection.send(request);
      std::this_thread::sleep_for(std::chrono::milliseconds(below(one_in(4) ? 1000 : 20)));
      return;
    default:
      record_.count("left during the answer");
      connection.send(http_request(
          "POST", "/v1/completions",
          json({{"model", "m"}, {"prompt", "x"}, {"max_tokens", kLongAnswer}, {"stream", true}})
              .dump()));
      for (int left = 1 + below(5); left > 0; --left) {
        const std::string part = connection.receive();
        if (part.empty()) record_.fault("a stream ended early");
        if (part.empty() || part.starts_with(kQueueFull)) return;
      }
  }
}

// Whoever has no more to send has left, as far as a server can know: it may answer or not, but does
// not let the connection be.
void SoakClient::close_one_half() {
  record_.count("half-closed");
  SoakConnection connection(port_);
  const std::string request = one_in(2) ? long_request() : http_request("GET", "/v1/models");
  connection.send(request);
  connection.send_no_more();
  const std::string all = connection.receive_rest();
  if (connection.timed_out()) record_.fault("a half-closed connection stays open");
  if (all.empty() || all.starts_with("HTTP/1.1 200 ") || all.starts_with(kQueueFull)) return;
  record_.fault("to a client that has closed one half: " + shortened(all));
}

void SoakClient::open_many() {
  record_.count("many idle connections");
  std::vector<std::unique_ptr<SoakConnection>> idle;
  for (int i = 0; i < 40; ++i) {
    idle.push_back(std::make_unique<SoakConnection>(port_));
    if (one_in(2)) idle.back()->send("GET /health HT");
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(below(200)));
  ask_one();
}

}  // namespace wideep::tests
