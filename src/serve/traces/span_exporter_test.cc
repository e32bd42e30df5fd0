// SPDX-License-Identifier: Apache-2.0
//
// Against a small collector over real sockets, which answers as the test wants.
#include "traces/span_exporter.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace wideep::traces {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::StartsWith;

// Reads requests one after the other. reply: what it sends to the nth (from 0); "": nothing, for as
// long as it lives.
class SmallCollector {
 public:
  using Replies = std::function<std::string(size_t n)>;
  explicit SmallCollector(Replies reply)
      : reply_(std::move(reply)), fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~SmallCollector() {
    ends_ = true;
    ::shutdown(fd_, SHUT_RDWR);
    if (const int client = client_; client >= 0) ::shutdown(client, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  int port() const { return port_; }
  static std::string ok(const std::string& body = "{}") {
    return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static std::string status(const std::string& line, const std::string& more = "") {
    return "HTTP/1.1 " + line + "\r\n" + more + "Content-Length: 0\r\n\r\n";
  }

  size_t num_connections() const { return num_connections_; }
  // To the present client. False: there is none, or it does not take it.
  bool send_more(const std::string& bytes) {
    const int client = client_;
    return client >= 0 && ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0;
  }
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  // All spans that were acknowledged or not, in the order of their arrival.
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const std::string& request : requests()) {
      const json body = json::parse(request.substr(request.find("\r\n\r\n") + 4));
      for (const json& span : body["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
        names.push_back(span["name"]);
      }
    }
    return names;
  }

 private:
  void serve() {
    while (!ends_) {
      const int client = ::accept(fd_, nullptr, nullptr);
      if (client < 0) return;
      client_ = client;
      ++num_connections_;
      std::string bytes;
      while (take_request(client, bytes)) {
      }
      client_ = -1;
      ::close(client);
    }
  }
  // False: the client has left.
  bool take_request(int client, std::string& bytes) {
    size_t end = 0;
    for (;;) {
      const size_t head = bytes.find("\r\n\r\n");
      if (head != bytes.npos) {
        const size_t length = std::stoul(bytes.substr(bytes.find("Content-Length: ") + 16));
        end = head + 4 + length;
        if (bytes.size() >= end) break;
      }
      char part[4096];
      const ssize_t count = ::recv(client, part, sizeof(part), 0);
      if (count <= 0) return false;
      bytes.append(part, static_cast<size_t>(count));
    }
    size_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = requests_.size();
      requests_.push_back(bytes.substr(0, end));
    }
    bytes.erase(0, end);
    const std::string reply = reply_(number);
    if (!reply.empty()) ::send(client, reply.data(), reply.size(), MSG_NOSIGNAL);
    return true;
  }

  const Replies reply_;
  const int fd_;
  int port_ = 0;
  std::atomic<bool> ends_ = false;
  std::atomic<int> client_ = -1;
  std::atomic<size_t> num_connections_ = 0;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

TraceSettings settings_for(int port, int timeout_ms = 10'000) {
  TraceSettings settings;
  settings.collector = {.url = "http://127.0.0.1:" + std::to_string(port),
                        .host = "127.0.0.1:" + std::to_string(port),
                        .address = "127.0.0.1",
                        .port = port,
                        .headers = {{"authorization", "Bearer key"}},
                        .timeout_ms = timeout_ms};
  settings.resource = {.attributes = {{"service.name", "wideep"}}, .version = "1.2"};
  return settings;
}

Span span(const std::string& name) {
  return {.trace_id = std::string(32, 'a'), .span_id = std::string(16, 'b'), .name = name};
}

std::unique_ptr<SpanExporter> start(int port, const ExporterLimits& limits,
                                    int timeout_ms = 10'000) {
  return SpanExporter::start(settings_for(port, timeout_ms), limits).value();
}

bool comes(const std::function<bool()>& there) {
  for (int i = 0; i < 10'000 && !there(); ++i) std::this_thread::sleep_for(milliseconds(1));
  return there();
}

TEST(ExportRequest, IsOtlpsJson) {
  Span whole{.trace_id = std::string(32, 'a'),
             .span_id = std::string(16, 'b'),
             .parent_id = std::string(16, 'c'),
             .state = "v=1",
             .name = "chat m",
             .kind = Span::kServer,
             .begin_ns = 1'795'918'905'123'456'789,
             .end_ns = 1'795'918'905'223'456'789,
             .attributes = {{"text", "x\xff"},
                            {"number", int64_t{1} << 60},
                            {"real", 0.5},
                            {"flag", true},
                            {"list", std::vector<std::string>{"stop", "length"}}},
             .error = "no"};
  const std::vector<Span> spans = {whole, span("plain")};
  const json body =
      json::parse(export_request({.attributes = {{"service.name", "s"}}, .version = "1.2"}, spans));
  const json expected = json::parse(R"({"resourceSpans":[{
    "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"s"}}]},
    "scopeSpans":[{"scope":{"name":"wideep","version":"1.2"},"spans":[
      {"traceId":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","spanId":"bbbbbbbbbbbbbbbb","traceState":"v=1",
       "parentSpanId":"cccccccccccccccc","name":"chat m","kind":2,
       "startTimeUnixNano":"1795918905123456789","endTimeUnixNano":"1795918905223456789",
       "attributes":[{"key":"text","value":{"stringValue":"x\ufffd"}},
                     {"key":"number","value":{"intValue":"1152921504606846976"}},
                     {"key":"real","value":{"doubleValue":0.5}},
                     {"key":"flag","value":{"boolValue":true}},
                     {"key":"list","value":{"arrayValue":{"values":[
                       {"stringValue":"stop"},{"stringValue":"length"}]}}}],
       "status":{"code":2,"message":"no"}},
      {"traceId":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","spanId":"bbbbbbbbbbbbbbbb","name":"plain",
       "kind":1,"startTimeUnixNano":"0","endTimeUnixNano":"0","attributes":[]}]}]}]})");
  EXPECT_EQ(body, expected);
}

TEST(SpanExporter, SendsBatchesToTheCollector) {
  SmallCollector collector([](size_t) { return SmallCollector::ok(); });
  const auto exporter = start(collector.port(), {.max_batch = 4, .batch_ms = 20});
  exporter->add({span("a"), span("b")});
  ASSERT_TRUE(comes([&] { return collector.names().size() == 2; }));
  const std::string request = collector.requests().front();
  EXPECT_THAT(request, StartsWith("POST /v1/traces HTTP/1.1\r\n"));
  EXPECT_THAT(request, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(request, HasSubstr("authorization: Bearer key\r\n"));
  EXPECT_THAT(request, HasSubstr("Host: 127.0.0.1:"));
  for (int i = 0; i < 20; ++i) exporter->add({span("c"), span("d"), span("e")});
  ASSERT_TRUE(comes([&] { return collector.names().size() == 62; }));
  EXPECT_EQ(exporter->num_dropped(), 0u);
}

// A whole batch does not wait for its time.
TEST(SpanExporter, AWholeBatchIsSentAtOnce) {
  SmallCollector collector([](size_t) { return SmallCollector::ok(); });
  const auto exporter = start(collector.port(), {.max_batch = 3, .batch_ms = 3'600'000});
  exporter->add({span("a"), span("b")});
  exporter->add({span("c")});
  EXPECT_TRUE(comes([&] { return collector.names().size() == 3; }));
}

TEST(SpanExporter, SendsAgainWhatMayBeTakenLater) {
  SmallCollector collector([](size_t n) {
    if (n == 0) return SmallCollector::status("503 Service Unavailable");
    if (n == 1) return SmallCollector::status("429 Too Many Requests", "Retry-After: 1\r\n");
    return SmallCollector::ok();
  });
  const auto exporter = start(collector.port(), {.batch_ms = 5, .first_wait_ms = 10});
  const auto begin = steady_clock::now();
  exporter->add({span("a")});
  ASSERT_TRUE(comes([&] { return collector.requests().size() == 3; }));
  EXPECT_GE(steady_clock::now() - begin, milliseconds(1000));  // Retry-After
  EXPECT_EQ(collector.names(), (std::vector<std::string>{"a", "a", "a"}));
  exporter->add({span("b")});
  ASSERT_TRUE(comes([&] { return collector.requests().size() == 4; }));
  EXPECT_EQ(exporter->num_dropped(), 0u);
}

TEST(SpanExporter, DropsWhatIsRefused) {
  SmallCollector collector([](size_t n) {
    if (n == 0) return SmallCollector::status("400 Bad Request");
    if (n == 1) {
      return SmallCollector::ok(
          R"({"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}})");
    }
    return SmallCollector::ok();
  });
  const auto exporter = start(collector.port(), {.batch_ms = 5});
  exporter->add({span("a"), span("b")});
  EXPECT_TRUE(comes([&] { return exporter->num_dropped() == 2; }));
  exporter->add({span("c"), span("d")});
  EXPECT_TRUE(comes([&] { return exporter->num_dropped() == 3; }));
  exporter->add({span("e")});
  EXPECT_TRUE(comes([&] { return collector.requests().size() == 3; }));
  EXPECT_EQ(exporter->num_dropped(), 3u);
}

// One try, so that what goes wrong shows at once.
std::unique_ptr<SpanExporter> start_exporter_once(int port) {
  return start(port, {.batch_ms = 5, .max_attempts = 1}, /*timeout_ms=*/20'000);
}

TEST(SpanExporter, GivesUpACollectorThatIsNotThere) {
  int port = 0;
  {
    port = SmallCollector([](size_t) { return ""; }).port();
  }
  const auto exporter = start(port, {.batch_ms = 5, .first_wait_ms = 2, .max_attempts = 3});
  exporter->add({span("a"), span("b")});
  EXPECT_TRUE(comes([&] { return exporter->num_dropped() == 2; }));
}

// Neither add() nor the end waits for a collector that says nothing: what finds no room is dropped.
TEST(SpanExporter, AStuckCollectorCostsSpansNotTime) {
  SmallCollector collector([](size_t) { return ""; });
  auto exporter =
      start(collector.port(), {.max_queue = 10, .max_batch = 4, .batch_ms = 5, .flush_ms = 100});
  exporter->add({span("first"), span("first"), span("first"), span("first")});
  ASSERT_TRUE(comes([&] { return collector.requests().size() == 1; }));
  const auto begin = steady_clock::now();
  for (int i = 0; i < 1000; ++i) exporter->add({span("a"), span("b"), span("c")});
  EXPECT_LT(steady_clock::now() - begin, milliseconds(500));
  EXPECT_EQ(exporter->num_dropped(), 3u * 997);  // 9 wait: a request's spans are not parted
  const auto end = steady_clock::now();
  exporter.reset();
  EXPECT_LT(steady_clock::now() - end, milliseconds(5000));
  EXPECT_GE(steady_clock::now() - end, milliseconds(90));  // it was given its time
}

TEST(SpanExporter, RequestsThatTakeTooLongAreSentAgain) {
  SmallCollector collector([](size_t n) { return n == 0 ? "" : SmallCollector::ok(); });
  const auto exporter =
      start(collector.port(), {.batch_ms = 5, .first_wait_ms = 5}, /*timeout_ms=*/100);
  exporter->add({span("a")});
  EXPECT_TRUE(comes([&] { return collector.requests().size() == 2; }));
  EXPECT_EQ(exporter->num_dropped(), 0u);
}

// A request has timeout_ms in all, though each byte of a reply comes in time.
TEST(SpanExporter, ACollectorThatDripsIsGivenUp) {
  std::atomic<bool> drips = true;
  SmallCollector collector([&](size_t n) { return n == 0 ? "" : SmallCollector::ok(); });
  std::thread drip([&] {
    for (; drips; std::this_thread::sleep_for(milliseconds(20))) collector.send_more("HTTP/1.1 ");
  });
  const auto exporter =
      start(collector.port(), {.batch_ms = 5, .first_wait_ms = 5}, /*timeout_ms=*/200);
  exporter->add({span("a")});
  EXPECT_TRUE(comes([&] { return collector.requests().size() == 2; }));
  drips = false;
  drip.join();
}

// Headers without an end do not fill the memory, as a body does not.
TEST(SpanExporter, ARepliesHeadersAndBodyHaveALimit) {
  std::atomic<size_t> taken = 0;
  const auto endless = [&](const std::string& start) {
    SmallCollector collector([](size_t) { return ""; });
    const auto exporter = start_exporter_once(collector.port());
    exporter->add({span("a")});
    EXPECT_TRUE(comes([&] { return collector.requests().size() == 1; }));
    collector.send_more(start);
    size_t sent = 0;
    const std::string more(4096, 'x');
    while (sent < (size_t{16} << 20) && collector.send_more(more)) sent += more.size();
    taken = sent;
    EXPECT_TRUE(comes([&] { return exporter->num_dropped() == 1; }));
  };
  for (const char* start : {"HTTP/1.1 200 OK\r\nX-Long: ", "HTTP/1.1 200 OK\r\n\r\n", "garbage"}) {
    endless(start);
    EXPECT_LT(taken, size_t{15} << 20) << start;
  }
}

// As a collector that closes what is idle: the next batch is not lost on it, nor is a line.
TEST(SpanExporter, EachRequestHasAConnectionOfItsOwn) {
  SmallCollector collector([](size_t) { return SmallCollector::ok(); });
  const auto exporter = start(collector.port(), {.batch_ms = 5});
  for (size_t i = 1; i <= 3; ++i) {
    exporter->add({span("a")});
    ASSERT_TRUE(comes([&] { return collector.requests().size() == i; }));
  }
  EXPECT_EQ(collector.num_connections(), 3u);
  EXPECT_THAT(collector.requests().front(), HasSubstr("Connection: close\r\n"));
}

TEST(SpanExporter, ACollectorCannotRefuseMoreThanItGot) {
  SmallCollector collector([](size_t n) {
    return n == 0 ? SmallCollector::ok(
                        R"({"partialSuccess":{"rejectedSpans":"18446744073709551615"}})")
                  : SmallCollector::ok(R"([[[)");
  });
  const auto exporter = start(collector.port(), {.batch_ms = 5});
  exporter->add({span("a"), span("b")});
  EXPECT_TRUE(comes([&] { return collector.requests().size() == 1; }));
  exporter->add({span("c")});
  EXPECT_TRUE(comes([&] { return collector.requests().size() == 2; }));
  EXPECT_EQ(exporter->num_dropped(), 2u);
}

// `wideep route` does not ignore SIGPIPE as a whole, as serve does.
TEST(SpanExporter, ItsThreadGetsNoPipeSignals) {
  SmallCollector collector([](size_t) { return SmallCollector::ok(); });
  const auto exporter = start(collector.port(), {.batch_ms = 5});
  const auto threads_without = [] {
    int count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream status(task.path() / "status");
      for (std::string line; std::getline(status, line);) {
        if (!line.starts_with("SigBlk:")) continue;
        count += (std::stoull(line.substr(7), nullptr, 16) >> (SIGPIPE - 1) & 1) != 0 ? 1 : 0;
      }
    }
    return count;
  };
  EXPECT_TRUE(comes([&] { return threads_without() == 1; }));
}

TEST(SpanExporter, TheEndSendsWhatIsLeft) {
  SmallCollector collector([](size_t) { return SmallCollector::ok(); });
  {
    const auto exporter = start(collector.port(), {.max_batch = 4, .batch_ms = 3'600'000});
    exporter->add({span("a"), span("b"), span("c")});
  }
  EXPECT_EQ(collector.names(), (std::vector<std::string>{"a", "b", "c"}));
}

}  // namespace
}  // namespace wideep::traces
