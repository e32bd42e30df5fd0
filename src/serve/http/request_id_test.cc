// SPDX-License-Identifier: Apache-2.0
//
// Ids of requests, and what is known of a request when it is over, over real sockets.
#include "http/request_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "http/http_client_testing.h"
#include "http/http_server.h"

namespace wideep::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(RequestId, WhichAClientMayChoose) {
  for (const char* good : {"a", "0123-4567", "req:1/2+3=4._", "A.b"}) {
    EXPECT_TRUE(is_request_id(good)) << good;
  }
  EXPECT_TRUE(is_request_id(std::string(128, 'x')));
  EXPECT_FALSE(is_request_id(std::string(129, 'x')));
  for (const char* bad : {"", " ", "a b", "a,b", "a\"b", "a\nb", "\xc3\xa9", "a%20", "<x>"}) {
    EXPECT_FALSE(is_request_id(bad)) << bad;
  }
  EXPECT_NE(request_id_of({}), request_id_of({}));
}

class Watched {
 public:
  explicit Watched(HttpServer::Handler handler)
      : server_(HttpServer::listen({.port = 0}, std::move(handler)).value()) {
    server_->on_ended([this](const RequestRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
    });
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Watched() { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
  }
  int port() const { return server_->port(); }
  HttpServer& server() { return *server_; }
  // Waits for so many.
  std::vector<RequestRecord> records(size_t count) {
    for (int i = 0; i < 10'000; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (records_.size() >= count) return records_;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return records_;
  }

 private:
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<RequestRecord> records_;
};

std::string id_in(const std::string& head) {
  const std::string name = "\r\nX-Request-Id: ";
  const size_t at = head.find(name);
  if (at == head.npos) return "";
  return head.substr(at + name.size(), head.find("\r\n", at + 2) - at - name.size());
}

TEST(RequestId, EveryReplyHasOne) {
  Watched running([](const std::shared_ptr<Exchange>& exchange) {
    if (exchange->path() == "/stream") {
      exchange->start_stream("text/event-stream");
      exchange->send("x");
      return exchange->end();
    }
    exchange->reply(200, "text/plain", exchange->request_id());
  });
  const Reply own = ask(running.port(), "GET", "/a?key=secret", "", "x-request-ID: mine:1\r\n");
  EXPECT_EQ(id_in(own.head), "mine:1");
  EXPECT_EQ(own.body, "mine:1");
  const char* const kMade = "[0-9a-f]{32}";
  for (const char* header :
       {"", "X-Request-Id: a b\r\n", "X-Request-Id: a\r\nX-Request-Id: b\r\n"}) {
    const Reply made = ask(running.port(), "GET", "/stream", "", header);
    EXPECT_THAT(id_in(made.head), testing::ContainsRegex(kMade)) << header << made.head;
  }
  Socket wrong(running.port());
  wrong.send("GET /b HTTP/1.1\r\nHost: h\r\nX-Request-Id: w\r\nContent-Length: x\r\n\r\n");
  const std::string refused = wrong.receive_all();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(id_in(refused), "w");

  const auto records = running.records(5);
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0].id, "mine:1");
  EXPECT_EQ(records[0].method, "GET");
  EXPECT_EQ(records[0].path, "/a");  // the query may have secrets
  EXPECT_EQ(records[0].status, 200);
  EXPECT_TRUE(records[0].is_whole);
  EXPECT_THAT(records[0].client, StartsWith("127.0.0.1:"));
  EXPECT_LE(records[0].came_ns, records[0].replied_ns);
  EXPECT_LE(records[0].replied_ns, records[0].ended_ns);
  EXPECT_EQ(records[1].path, "/stream");
  EXPECT_EQ(records[4].id, "w");
  EXPECT_EQ(records[4].status, 400);
  EXPECT_EQ(records[4].path, "/b");
}

TEST(RequestId, ClientsThatLeaveAreToldToo) {
  std::vector<std::shared_ptr<Exchange>> waiting;
  Watched running([&](std::shared_ptr<Exchange> exchange) {
    exchange->record().text.emplace().generated_tokens = 3;
    exchange->on_gone([exchange = exchange.get()] { ++exchange->record().text->generated_tokens; });
    waiting.push_back(std::move(exchange));
  });
  {
    Socket leaves(running.port());
    leaves.send("GET /a HTTP/1.1\r\nHost: h\r\nX-Request-Id: left\r\n\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  auto records = running.records(1);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].id, "left");
  EXPECT_EQ(records[0].status, 0);
  EXPECT_FALSE(records[0].is_whole);
  EXPECT_EQ(records[0].text->generated_tokens, 4);  // with what was noted when it left
  Socket stays(running.port());
  stays.send("GET /b HTTP/1.1\r\nHost: h\r\n\r\n");
  running.server().post([&] { waiting.clear(); });
  running.records(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  running.server().post([&] { waiting.clear(); });
  EXPECT_THAT(stays.receive(), HasSubstr("X-Request-Id: "));
  EXPECT_EQ(running.records(2).size(), 2u);
}

// Of one that has sent no whole head nobody knows what it wanted.
TEST(RequestId, RequestsThatNeverComeWholeAreToldToo) {
  Watched running(
      [](const std::shared_ptr<Exchange>& exchange) { exchange->reply(200, "text/plain", ""); });
  {
    Socket nothing(running.port()), head(running.port()), body(running.port());
    head.send("GET /head HTTP/1.1\r\nHost: h\r\n");
    body.send("POST /body HTTP/1.1\r\nHost: h\r\nX-Request-Id: cut\r\nContent-Length: 9\r\n\r\n1");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  auto records = running.records(1);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].id, "cut");
  EXPECT_EQ(records[0].method, "POST");
  EXPECT_EQ(records[0].path, "/body");
  EXPECT_EQ(records[0].status, 0);
  EXPECT_FALSE(records[0].is_whole);
  EXPECT_THAT(records[0].client, StartsWith("127.0.0.1:"));
  ask(running.port(), "GET", "/");
  records = running.records(2);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].path, "/");
}

}  // namespace
}  // namespace wideep::server
