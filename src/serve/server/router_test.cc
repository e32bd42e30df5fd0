// SPDX-License-Identifier: Apache-2.0
//
// The router over real sockets, with replicas that reply as the test wants.
#include "server/router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "http/http_client_testing.h"
#include "server/router_testing.h"
#include "server/stream_records.h"

namespace wideep::server {
namespace {

using testing::HasSubstr;

// A listening port that never accepts or replies: `backlog` connections succeed, later ones hang.
class SilentPort {
 public:
  explicit SilentPort(int backlog) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(fd_, backlog), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentPort() { ::close(fd_); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  int port() const { return port_; }

 private:
  int fd_;
  int port_ = 0;
};

void reply_with(const std::shared_ptr<Exchange>& exchange, const std::string& text) {
  exchange->reply(200, "application/json", text + " " + exchange->body());
}

class RouterTest : public RoutedTest {
 protected:
  void route_to(const std::vector<int>& ports, std::vector<std::string> cors_origins = {},
                int give_up_seconds = 8) {
    route({.http = {.port = 0, .cors_origins = std::move(cors_origins)},
           .replicas = {},
           .give_up_seconds = give_up_seconds},
          ports);
  }
  Reply post(const std::string& body) const {
    return ask(router_->port(), "POST", "/v1/completions", body);
  }
  // A port without a listener.
  static int closed_port() {
    const auto server = HttpServer::listen({.port = 0}, [](std::shared_ptr<Exchange>) {});
    return (*server)->port();
  }
};

TEST(ReplicaAddress, IsReadOrRefused) {
  const auto read = parse_replica("http://node-3:8000/");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->url(), "http://node-3:8000");
  EXPECT_TRUE(parse_replica("10.0.0.1:80").ok());
  for (const char* wrong : {"", "host", ":80", "host:", "host:0", "host:65536", "host:8x",
                            "http://host:80/v1", "https://host:443"}) {
    const auto refused = parse_replica(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidInput);
    EXPECT_THAT(refused.status().message(), HasSubstr("expected http://host:port"));
  }
}

TEST_F(RouterTest, AnthropicsRequestsHaveTheirHeadersAndErrors) {
  TestReplica full([](const auto& exchange) { exchange->reply(529, "application/json", "{}"); });
  TestReplica free([](const auto& exchange) {
    exchange->add_header("request-id", "req_1");
    exchange->reply(200, "text/plain",
                    exchange->header("x-api-key") + " " + exchange->header("anthropic-version"));
  });
  route_to({full.port(), free.port()});
  const std::string headers = "x-api-key: key\r\nanthropic-version: 2023-06-01\r\n";
  for (int i = 0; i < 2; ++i) {
    const Reply reply = ask(router_->port(), "POST", "/v1/messages", "{}", headers);
    EXPECT_EQ(reply.body, "key 2023-06-01");
    EXPECT_THAT(reply.head, HasSubstr("request-id: req_1"));
  }
  EXPECT_GE(full.asked, 1);
}

TEST_F(RouterTest, RequestsKeepTheirIdWhicheverReplicaAnswers) {
  std::string asked, again;
  TestReplica full([&](const auto& exchange) {
    asked = exchange->header("x-request-id");
    exchange->reply(503, "application/json", "{}");
  });
  TestReplica free([&](const auto& exchange) {
    again = exchange->header("x-request-id");
    exchange->reply(200, "application/json", "{}");
  });
  route_to({full.port(), free.port()});
  const Reply own = ask(router_->port(), "POST", "/v1/completions", "{}", "X-Request-Id: mine\r\n");
  EXPECT_THAT(own.head, HasSubstr("\r\nX-Request-Id: mine"));
  EXPECT_EQ(own.head.find("X-Request-Id", own.head.find("X-Request-Id") + 1), own.head.npos);
  EXPECT_EQ(again, "mine");
  const Reply made = post("{}");
  EXPECT_EQ(again.size(), 32u);
  EXPECT_THAT(made.head, HasSubstr("\r\nX-Request-Id: " + again));
  if (full.asked > 0) {
    EXPECT_TRUE(asked == "mine" || asked == again) << asked;
  }
}

// A router that traces nothing is not seen in a trace.
TEST_F(RouterTest, TraceContextsArePassedOn) {
  std::string parent, state;
  TestReplica replica([&](const auto& exchange) {
    parent = exchange->header("traceparent");
    state = exchange->header("tracestate");
    exchange->add_header("traceparent", "of the replica's span");
    exchange->reply(200, "application/json", "{}");
  });
  route_to({replica.port()});
  const std::string sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const Reply reply = ask(router_->port(), "POST", "/v1/completions", "{}",
                          "traceparent: " + sent + "\r\ntracestate: a=1,b=2\r\n");
  EXPECT_EQ(parent, sent);
  EXPECT_EQ(state, "a=1,b=2");
  EXPECT_THAT(reply.head, HasSubstr("\r\ntraceparent: of the replica's span\r\n"));
}

TEST_F(RouterTest, RequestsAreDistributedAndRepliesAreUnchanged) {
  TestReplica first([](const auto& exchange) { reply_with(exchange, "first"); });
  TestReplica second([](const auto& exchange) {
    exchange->reply(400, "application/json", exchange->header("Authorization"));
  });
  route_to({first.port(), second.port()});
  int wrong = 0;
  for (int i = 0; i < 10; ++i) {
    const Reply reply =
        ask(router_->port(), "POST", "/v1/completions", "hello", "Authorization: Bearer key\r\n");
    EXPECT_EQ(reply.body, reply.status == 200 ? "first hello" : "Bearer key");
    wrong += reply.status == 400 ? 1 : 0;
  }
  EXPECT_EQ(wrong, 5);
  EXPECT_EQ(first.asked, 5);
  EXPECT_THAT(ask(router_->port(), "GET", "/metrics").body,
              HasSubstr("wideep_router_requests_total{replica=\"http://127.0.0.1:" +
                        std::to_string(first.port()) + "\"} 5"));
}

TEST_F(RouterTest, TheLeastBusyIsAsked) {
  std::shared_ptr<Exchange> kept;
  std::atomic<bool> keeps = false;
  TestReplica busy([&](const auto& exchange) {
    kept = exchange;
    keeps = true;
  });
  TestReplica idle([](const auto& exchange) { reply_with(exchange, "idle"); });
  route_to({busy.port(), idle.port()});
  std::thread waits([&] { EXPECT_EQ(post("a").body, "late"); });
  ASSERT_TRUE(comes([&] { return keeps.load(); }));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(post("b").body, "idle b");
  }
  busy.server().post([&] { std::exchange(kept, nullptr)->reply(200, "text/plain", "late"); });
  waits.join();
  EXPECT_EQ(busy.asked, 1);
}

TEST_F(RouterTest, ReplicasThatDoNotAnswerArePassedOver) {
  TestReplica full([](const auto& exchange) { exchange->reply(429, "text/plain", "full", "7"); });
  TestReplica good([](const auto& exchange) { reply_with(exchange, "good"); });
  route_to({closed_port(), full.port(), good.port()});
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(post("x").body, "good x");
  }
  EXPECT_GE(full.asked, 1);
  const std::string metrics = ask(router_->port(), "GET", "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("\nwideep_router_replica_up{"));
  EXPECT_THAT(metrics, HasSubstr("\nprocess_open_fds "));
}

// `silent` accepts connections, as a server that loads does, and has fewer requests than the
// others.
TEST_F(RouterTest, UnhealthyReplicasAreTriedLast) {
  const SilentPort silent(16);
  TestReplica stops([](const auto& exchange) { reply_with(exchange, "stops"); });
  TestReplica good([](const auto& exchange) { reply_with(exchange, "good"); });
  stops.health = 503;
  route_to({silent.port(), stops.port(), good.port()});
  ASSERT_TRUE(comes([&] {
    return value("replica_up", silent.port()) == "0" && value("replica_up", stops.port()) == "0";
  }));
  EXPECT_EQ(value("replica_up", good.port()), "1");
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(post("x").body, "good x");
  }
  stops.health = 200;
  EXPECT_TRUE(comes([&] { return value("replica_up", stops.port()) == "1"; }));
  for (int i = 0; i < 4; ++i) post("x");
  EXPECT_GE(stops.asked, 1);
}

// Like a machine that is switched off: nothing answers the first packet.
TEST_F(RouterTest, UnreachableReplicasArePassedOverSoon) {
  const SilentPort full(0);
  const Socket fills(full.port());
  TestReplica good([](const auto& exchange) { reply_with(exchange, "good"); });
  route_to({full.port(), good.port()});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(post("x").body, "good x");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(value("failures_total", full.port()), "1");
  EXPECT_EQ(value("replica_up", full.port()), "0");
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(post("x").body, "good x");
  }
  EXPECT_EQ(value("failures_total", full.port()), "1");
}

TEST_F(RouterTest, QueriesArePassedOnAndPathsAsTheyCame) {
  TestReplica replica([](const auto& exchange) { reply_with(exchange, exchange->target()); });
  route_to({replica.port()});
  EXPECT_EQ(ask(router_->port(), "GET", "/v1/models/a%20b?c=d%20e").body,
            "/v1/models/a%20b?c=d%20e ");
  const int asked = replica.asked;
  for (const char* of_one :
       {"/dashboard", "/dashboard/data?since=1", "/dashboard/load", "/perf_metrics/",
        "/start_expert_distribution_record", "/scale_elastic_ep", "/is_scaling_elastic_ep",
        "/v1/cache/export", "/v1/cache/import"}) {
    EXPECT_EQ(ask(router_->port(), "GET", of_one).status, 404) << of_one;
    EXPECT_EQ(ask(router_->port(), "POST", of_one, "{}").status, 404) << of_one;
  }
  EXPECT_EQ(replica.asked, asked);
}

// The chat page would run scripts without it.
TEST_F(RouterTest, TheRulesOfAPageArePassedOn) {
  TestReplica replica([](const auto& exchange) {
    exchange->add_header("Content-Security-Policy", "default-src 'none'");
    exchange->add_header("Cache-Control", "no-cache");
    reply_with(exchange, "page");
  });
  route_to({replica.port()});
  EXPECT_THAT(ask(router_->port(), "GET", "/").head,
              AllOf(HasSubstr("\r\nContent-Security-Policy: default-src 'none'\r\n"),
                    HasSubstr("\r\nCache-Control: no-cache\r\n")));
}

TEST(Resolve, GivesNumbersOrAnErrorWithTheUnknownName) {
  EXPECT_EQ(resolve({"10.1.2.3", 80}).value(), "10.1.2.3");
  EXPECT_EQ(resolve({"[::1]", 80}).value(), "::1");
  EXPECT_EQ(resolve({"localhost", 80}).value(), "127.0.0.1");
  const auto unknown = resolve({"nowhere.invalid", 80});
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.status().message(),
              HasSubstr("--replica http://nowhere.invalid:80: the host 'nowhere.invalid' has no "
                        "address"));
}

TEST_F(RouterTest, ARequestThatAllReplicasRefuseIsRefused) {
  TestReplica full([](const auto& exchange) { exchange->reply(429, "text/plain", "full", "7"); });
  route_to({full.port(), full.port()});
  const Reply reply = post("x");
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.body, "full");
  EXPECT_THAT(reply.head, HasSubstr("Retry-After: 7"));
}

TEST_F(RouterTest, WithoutAnyReplicaTheErrorNamesAll) {
  const int port = closed_port();
  route_to({port});
  const Reply reply = post("x");
  EXPECT_EQ(reply.status, 503);
  EXPECT_THAT(reply.body,
              HasSubstr("none of the replicas answers: http://127.0.0.1:" + std::to_string(port)));
  EXPECT_EQ(ask(router_->port(), "GET", "/dashboard").status, 404);
}

TEST_F(RouterTest, StreamsArePassedOnAsTheyCome) {
  std::shared_ptr<Exchange> stream;
  std::atomic<bool> began = false;
  TestReplica replica([&](const auto& exchange) {
    stream = exchange;
    exchange->start_stream("text/event-stream");
    exchange->send("data: {\"n\": 1}\n\n");
    began = true;
  });
  route_to({replica.port()});
  Socket client(router_->port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
  std::string received;
  while (received.find("\"n\": 1") == received.npos) {
    const std::string part = client.receive();
    ASSERT_FALSE(part.empty()) << received;
    received += part;
  }
  EXPECT_THAT(received, HasSubstr("text/event-stream"));
  replica.server().post([&] {
    stream->send("data: [DONE]\n\n");
    std::exchange(stream, nullptr)->end();
  });
  while (received.find("[DONE]") == received.npos) {
    const std::string part = client.receive();
    ASSERT_FALSE(part.empty()) << received;
    received += part;
  }
}

TEST_F(RouterTest, TheReplicaNoticesThatAWaitingClientLeaves) {
  std::shared_ptr<Exchange> kept;
  std::atomic<bool> keeps = false, gone = false;
  TestReplica replica([&](const auto& exchange) {
    kept = exchange;
    exchange->on_gone([&] { gone = true; });
    keeps = true;
  });
  route_to({replica.port()});
  {
    Socket client(router_->port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    ASSERT_TRUE(comes([&] { return keeps.load(); }));
  }
  EXPECT_TRUE(comes([&] { return gone.load(); }));
  replica.server().post([&] { kept.reset(); });
  EXPECT_EQ(value("requests_running", replica.port()), "0");
}

TEST_F(RouterTest, TheReplicaNoticesThatAStreamingClientLeaves) {
  std::shared_ptr<Exchange> stream;
  std::atomic<bool> began = false, gone = false;
  TestReplica replica([&](const auto& exchange) {
    stream = exchange;
    exchange->on_gone([&] { gone = true; });
    exchange->start_stream("text/event-stream");
    exchange->send("data: 1\n\n");
    began = true;
  });
  route_to({replica.port()});
  {
    Socket client(router_->port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
    EXPECT_THAT(client.receive(), HasSubstr("200 OK"));
  }
  EXPECT_TRUE(comes([&] { return gone.load(); }));
  replica.server().post([&] { stream.reset(); });
  EXPECT_EQ(ask(router_->port(), "GET", "/metrics").status, 200);
}

// What follows the events that came before: an error, and [DONE] as OpenAI's clients expect it.
void expect_lost(const std::string& received, int port) {
  EXPECT_THAT(received, HasSubstr("data: 1\n\n"));
  EXPECT_THAT(received,
              HasSubstr("\n\ndata: {\"error\":{\"message\":\"the replica http://127.0.0.1:" +
                        std::to_string(port) + " was lost before the answer was complete\""));
  EXPECT_THAT(received, HasSubstr("\"code\":\"replica_lost\"}}\n\ndata: [DONE]\n\n"));
  EXPECT_THAT(received, HasSubstr("\r\n0\r\n"));  // the end of a whole reply
}

TEST_F(RouterTest, AStreamThatIsCutEndsWithAnError) {
  std::shared_ptr<Exchange> stream;
  TestReplica replica([&](const auto& exchange) {
    stream = exchange;
    exchange->start_stream("text/event-stream");
    exchange->send("data: 1\n\n");
  });
  route_to({replica.port()});
  Socket client(router_->port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  const std::string first = client.receive();
  EXPECT_THAT(first, HasSubstr("200 OK"));
  replica.server().post([&] { stream.reset(); });
  expect_lost(first + client.receive_all(), replica.port());
}

// Replicas of one answer, each of which sends it from where the records end to a given event, and is
// lost then.
class LostReplica {
 public:
  static constexpr int kNumEvents = 6;
  explicit LostReplica(int last)
      : replica_([this, last](const auto& exchange) { answer(exchange, last); }) {}
  TestReplica& replica() { return replica_; }
  static std::string event(int i) { return "data: " + std::to_string(i) + "\n\n"; }

 private:
  void answer(const std::shared_ptr<Exchange>& exchange, int last) {
    EXPECT_EQ(exchange->header(kJournalHeader), "1");
    int num_records = 0;
    if (const std::string resumes = exchange->header(kResumeHeader); !resumes.empty()) {
      const auto split = split_resumed(resumes, exchange->body());
      ASSERT_TRUE(split.ok()) << split.status().message();
      EXPECT_EQ(split->request, "{\"stream\": true}");
      num_records = static_cast<int>(split->records.size());
      for (int i = 0; i < num_records; ++i) {
        EXPECT_EQ(split->records[static_cast<size_t>(i)], std::to_string(i));
      }
    } else {
      EXPECT_EQ(exchange->body(), "{\"stream\": true}");
    }
    exchange->start_stream("text/event-stream");
    for (int i = 0; i < last; ++i) {
      if (i >= num_records) exchange->send(record_comment(std::to_string(i)));
      exchange->send(event(i));
    }
    if (last == kNumEvents) return exchange->end();
    // Half of an event, which the next replica makes whole.
    if (last >= num_records) exchange->send(record_comment(std::to_string(last)));
    exchange->send(event(last).substr(0, 4));
    // When the client has that.
    cuts_.emplace_back([this, exchange] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      replica_.server().post([exchange] { exchange->cut(); });
    });
  }
  TestReplica replica_;
  std::vector<std::jthread> cuts_;
};

TEST_F(RouterTest, StreamsGoOnAtAnotherReplica) {
  LostReplica first(2), second(4), third(LostReplica::kNumEvents);
  std::string whole;
  for (int i = 0; i < LostReplica::kNumEvents; ++i) whole += LostReplica::event(i);
  route_to({first.replica().port(), second.replica().port(), third.replica().port()});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(post("{\"stream\": true}").body, whole);
  EXPECT_GE(first.replica().asked + second.replica().asked, 1);
  EXPECT_THAT(ask(router_->port(), "GET", "/metrics").body,
              HasSubstr("\nwideep_router_streams_resumed_total "));
}

// One that ends all who answer it is given up.
TEST_F(RouterTest, AStreamThatIsLostAgainAndAgainEndsWithAnError) {
  LostReplica first(2), second(2);
  route_to({first.replica().port(), second.replica().port()});
  const Reply reply = post("{\"stream\": true}");
  EXPECT_THAT(reply.body, testing::StartsWith(LostReplica::event(0) + LostReplica::event(1)));
  EXPECT_THAT(reply.body, HasSubstr("\"code\":\"replica_lost\"}}\n\ndata: [DONE]\n\n"));
  EXPECT_EQ(first.replica().asked + second.replica().asked, 4);
}

// It computes other bits, or is another version.
TEST_F(RouterTest, AStreamThatWouldGoOnOtherwiseEndsWithAnError) {
  LostReplica first(2);
  TestReplica other([](const auto& exchange) {
    exchange->start_stream("text/event-stream");
    exchange->send("data: something else\n\n");
    exchange->end();
  });
  TestReplica refuses([](const auto& exchange) { exchange->reply(400, "application/json", "{}"); });
  route_to({first.replica().port(), other.port()});
  Reply reply = post("{\"stream\": true}");
  if (other.asked == 1 && first.replica().asked == 0) reply = post("{\"stream\": true}");
  EXPECT_THAT(reply.body, testing::StartsWith(LostReplica::event(0) + LostReplica::event(1)));
  EXPECT_THAT(reply.body, testing::Not(HasSubstr("something else")));
  EXPECT_THAT(reply.body, HasSubstr("\"code\":\"replica_lost\"}}\n\ndata: [DONE]\n\n"));
  end();
  route_to({first.replica().port(), refuses.port()});
  reply = post("{\"stream\": true}");
  if (reply.status == 400) reply = post("{\"stream\": true}");
  EXPECT_THAT(reply.body, HasSubstr("\"code\":\"replica_lost\"}}\n\ndata: [DONE]\n\n"));
}

TEST_F(RouterTest, AnthropicsStreamsEndWithTheirErrors) {
  std::shared_ptr<Exchange> stream;
  TestReplica lost([&](const auto& exchange) {
    stream = exchange;
    exchange->start_stream("text/event-stream");
    exchange->send("event: ping\ndata: {}\n\n");
  });
  route_to({lost.port()});
  Socket client(router_->port());
  client.send(
      "POST /v1/messages HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  const std::string first = client.receive();
  EXPECT_THAT(first, HasSubstr("200 OK"));
  lost.server().post([&] { stream.reset(); });
  EXPECT_THAT(
      first + client.receive_all(),
      HasSubstr("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\""));
}

// Its thread is stuck in the middle of a stream, while a whole request waits for it too.
TEST_F(RouterTest, AHungReplicaIsGivenUp) {
  std::atomic<bool> hangs = true;
  std::shared_ptr<Exchange> stream, waiting;
  TestReplica hung([&](const auto& exchange) {
    if (exchange->body() != "stream") {
      waiting = exchange;
      return;
    }
    stream = exchange;
    exchange->start_stream("text/event-stream");
    exchange->send("data: 1\n\n");
  });
  route_to({hung.port()}, {}, 4);
  Socket client(router_->port());
  client.send(
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 6\r\n\r\n"
      "stream");
  const std::string first = client.receive();
  EXPECT_THAT(first, HasSubstr("200 OK"));
  auto whole = std::async(std::launch::async, [&] { return post("whole"); });
  ASSERT_TRUE(comes([&] { return hung.asked == 2; }));
  hung.server().post([&] {
    while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  const auto start = std::chrono::steady_clock::now();
  expect_lost(first + client.receive_all(), hung.port());
  const Reply refused = whole.get();
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("none of the replicas answers"));
  // From then on the router answers at once, also for what only a replica knows.
  const auto asked = std::chrono::steady_clock::now();
  EXPECT_GT(asked - start, std::chrono::seconds(2));
  EXPECT_LT(asked - start, std::chrono::seconds(12));
  EXPECT_EQ(ask(router_->port(), "GET", "/health").status, 503);
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(3));
  EXPECT_EQ(ask(router_->port(), "GET", "/v1/models").status, 503);
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(6));
  hangs = false;
  EXPECT_TRUE(comes([&] { return ask(router_->port(), "GET", "/health").status == 200; }));
  hung.server().post([&] { stream.reset(), waiting.reset(); });
}

// It accepts connections and never replies; health checks have not noticed it yet. One that is
// missed is enough: long requests wait on, for 8 s.
TEST_F(RouterTest, ShortRequestsDoNotWaitForAHungReplica) {
  const SilentPort silent(16);
  TestReplica good([](const auto& exchange) { reply_with(exchange, "good"); });
  route_to({silent.port(), good.port()});
  auto longer = std::async(std::launch::async, [&] { return post("x").body; });
  ASSERT_TRUE(comes([&] { return value("requests_running", silent.port()) == "1"; }));
  for (int i = 0; i < 3; ++i) {  // the third as the two before: the silent one is asked last
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(ask(router_->port(), "GET", "/v1/models").body, "good ");
    EXPECT_EQ(ask(router_->port(), "GET", "/metrics").status, 200);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(i == 2 ? 3 : 6));
  }
  EXPECT_EQ(longer.get(), "good x");
  EXPECT_EQ(ask(router_->port(), "GET", "/health").body_json()["healthy"], 1);
  EXPECT_EQ(ask(router_->port(), "GET", "/health/").status, 200);
}

// Methods reach the replica as they came, and its Allow comes back.
TEST_F(RouterTest, MethodsArePassedOnOrRefused) {
  TestReplica replica([](const auto& exchange) {
    if (exchange->method() == "GET" || exchange->method() == "POST") {
      return reply_with(exchange, exchange->method());
    }
    exchange->add_header("Allow", "GET, HEAD");
    exchange->reply(405, "application/json", exchange->method());
  });
  route_to({replica.port()});
  for (const char* method : {"DELETE", "PUT", "PATCH", "OPTIONS"}) {
    const Reply reply = ask(router_->port(), method, "/v1/models/reference");
    EXPECT_EQ(reply.status, 405) << method;
    EXPECT_EQ(reply.body, method);
    EXPECT_THAT(reply.head, HasSubstr("Allow: GET, HEAD"));
  }
  const Reply head = ask(router_->port(), "HEAD", "/v1/models/reference");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_THAT(head.head, HasSubstr("Content-Length: 4"));  // of what GET answers
  EXPECT_EQ(ask(router_->port(), "HEAD", "/health").status, 200);
  const Reply unknown = ask(router_->port(), "BREW", "/v1/models/reference");
  EXPECT_EQ(unknown.status, 405);
  EXPECT_THAT(unknown.head, HasSubstr("Allow: GET, HEAD, POST, OPTIONS"));
  EXPECT_EQ(replica.asked, 5);
}

// Without origins of its own the router passes on what replicas say about them; with them it says
// it itself, and replicas are not asked.
// Without its length, the replica, or a proxy before it, would read it as the next request.
TEST_F(RouterTest, BodiesOfAllMethodsHaveTheirLength) {
  TestReplica replica([](const std::shared_ptr<Exchange>& exchange) {
    exchange->reply(200, "text/plain", exchange->header("Content-Length") + exchange->body());
  });
  route_to({replica.port()});
  const std::string smuggled = "POST /scale_elastic_ep HTTP/1.1\r\nHost: h\r\n\r\n";
  const std::string expected = std::to_string(smuggled.size()) + smuggled;
  for (const char* method : {"GET", "OPTIONS", "DELETE", "POST", "PUT", "PATCH"}) {
    EXPECT_EQ(ask(router_->port(), method, "/v1/models", smuggled).body, expected) << method;
  }
  EXPECT_EQ(ask(router_->port(), "HEAD", "/v1/models", smuggled).status, 200);
  EXPECT_EQ(replica.asked, 7);
}

TEST_F(RouterTest, OriginsAreTheRoutersOwnWhereSet) {
  const std::string a = "Origin: https://a.example\r\n", b = "Origin: https://b.example\r\n";
  const std::string asks = a +
                           "Access-Control-Request-Method: POST\r\n"
                           "Access-Control-Request-Headers: authorization, x-a\r\n";
  const auto answer = [](const std::shared_ptr<Exchange>& exchange) {
    exchange->add_header("Vary", "Origin");
    exchange->add_header("Access-Control-Allow-Origin", "https://replica.example");
    if (exchange->method() == "OPTIONS") exchange->add_header("Allow", "POST, OPTIONS");
    exchange->reply(exchange->method() == "OPTIONS" ? 204 : 200, "text/plain",
                    exchange->header("Origin"));
  };
  TestReplica replica(answer);
  const std::string of_replica = "\r\nAccess-Control-Allow-Origin: https://replica.example\r\n";
  const std::string of_router = "\r\nAccess-Control-Allow-Origin: https://a.example\r\n";
  route_to({replica.port()});
  const Reply passed = ask(router_->port(), "GET", "/v1/models", "", a);
  EXPECT_EQ(passed.body, "https://a.example");
  EXPECT_THAT(passed.head, HasSubstr(of_replica));
  EXPECT_EQ(ask(router_->port(), "GET", "/metrics", "", a).head.find("Access-Control"),
            std::string::npos);
  router_->stop();
  thread_.join();
  route_to({replica.port()}, {"https://a.example"});
  for (const char* path : {"/v1/models", "/health", "/metrics", "/dashboard"}) {  // all replies
    const Reply own = ask(router_->port(), "GET", path, "", a);
    EXPECT_THAT(own.head, HasSubstr(of_router)) << path;
    EXPECT_EQ(own.head.find("replica.example"), std::string::npos);
    EXPECT_EQ(own.head.find("Vary"), own.head.rfind("Vary"));
    EXPECT_EQ(ask(router_->port(), "GET", path, "", b).head.find("Access-Control"),
              std::string::npos);
  }
  EXPECT_EQ(ask(router_->port(), "GET", "/v1/models", "", a).body, "");  // it was not passed on
  const Reply question = ask(router_->port(), "OPTIONS", "/v1/completions", "", asks);
  EXPECT_EQ(question.status, 204);
  EXPECT_THAT(question.head, HasSubstr(of_router));
  EXPECT_THAT(question.head, HasSubstr("\r\nAccess-Control-Allow-Methods: POST, OPTIONS\r\n"));
  EXPECT_THAT(question.head, HasSubstr("\r\nAccess-Control-Allow-Headers: authorization, x-a\r\n"));
  EXPECT_EQ(ask(router_->port(), "OPTIONS", "/v1/completions", "", b).head.find("Access-Control"),
            std::string::npos);
  const Reply large =
      ask(router_->port(), "POST", "/v1/completions", std::string((8 << 20) + 1, 'x'), a);
  EXPECT_EQ(large.status, 413);
  EXPECT_THAT(large.head, HasSubstr(of_router));
}

TEST_F(RouterTest, AReplicaThatDrainsIsTakenOutAndBack) {
  std::atomic<bool> drains = false;
  std::shared_ptr<Exchange> running, beside;
  // As busy as the one that drains, so that they take turns.
  TestReplica other([&](const std::shared_ptr<Exchange>& exchange) {
    if (exchange->body() != "long") return reply_with(exchange, "other");
    beside = exchange;
  });
  TestReplica replica([&](const std::shared_ptr<Exchange>& exchange) {
    if (exchange->body() == "long") {
      running = exchange;
      running->start_stream("text/event-stream");
      return running->send("data: begun\n\n");
    }
    if (!drains) return reply_with(exchange, "replica");
    exchange->reply(503, "application/json", R"({"error":{"code":"draining"}})", "1");
  });
  route_to({replica.port(), other.port()});
  auto stream = std::async(std::launch::async, [&] { return post("long"); });
  ASSERT_TRUE(comes([&] { return replica.asked + other.asked > 0; }));
  ASSERT_EQ(replica.asked, 1);
  auto held = std::async(std::launch::async, [&] { return post("long"); });
  ASSERT_TRUE(comes([&] { return other.asked == 1; }));
  drains = true;
  replica.health = 503;
  // No request is lost before the next health check, and it counts as no failure.
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(post("x").body, "other x");
  }
  EXPECT_EQ(value("failures_total", replica.port()), "0");
  EXPECT_EQ(value("replica_up", replica.port()), "0");
  const int asked = replica.asked;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(post("x").body, "other x");
  }
  EXPECT_EQ(replica.asked, asked);
  // What runs there ends whole.
  replica.server().post([&] {
    running->send("data: ended\n\n");
    running->end();
  });
  EXPECT_THAT(stream.get().body, AllOf(HasSubstr("begun"), HasSubstr("ended")));
  other.server().post([&] { reply_with(beside, "held"); });
  EXPECT_EQ(held.get().status, 200);
  EXPECT_EQ(ask(router_->port(), "POST", "/drain").status, 404);  // of which one?
  drains = false;
  replica.health = 200;
  EXPECT_TRUE(comes([&] { return value("replica_up", replica.port()) == "1"; }));
  bool answers = false;  // they take turns
  EXPECT_TRUE(comes([&] { return answers = answers || post("x").body == "replica x"; }));
}

TEST_F(RouterTest, DrainingLetsRunningRequestsEnd) {
  std::shared_ptr<Exchange> kept;
  std::atomic<bool> keeps = false;
  TestReplica replica([&](const auto& exchange) {
    kept = exchange;
    keeps = true;
  });
  route_to({replica.port()});
  std::thread waits([&] { EXPECT_EQ(post("a").body, "late"); });
  ASSERT_TRUE(comes([&] { return keeps.load(); }));
  router_->drain();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(over_);
  EXPECT_EQ(post("b").status, 503);  // refused at once
  EXPECT_EQ(replica.asked, 1);
  replica.server().post([&] { std::exchange(kept, nullptr)->reply(200, "text/plain", "late"); });
  waits.join();
  EXPECT_TRUE(comes([&] { return over_.load(); }));
}

}  // namespace
}  // namespace wideep::server
