// SPDX-License-Identifier: Apache-2.0
//
// The server over real sockets, with handlers that reply as the test wants.
#include "http/http_server.h"

#include <event2/event.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "base/cpu_time.h"
#include "base/log.h"
#include "base/sanitized.h"
#include "http/http_client_testing.h"
#include "http/open_files.h"

namespace wideep::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Serves on a thread of its own until it goes.
class Running {
 public:
  explicit Running(HttpServer::Handler handler, HttpOptions options = {})
      : server_(listen(std::move(options), std::move(handler))),
        thread_([this] { server_->run(); }) {}
  ~Running() {
    server_->stop();
    thread_.join();
  }
  int port() const { return server_->port(); }
  HttpServer& server() { return *server_; }

 private:
  static std::unique_ptr<HttpServer> listen(HttpOptions options, HttpServer::Handler handler) {
    options.port = 0;
    return HttpServer::listen(options, std::move(handler)).value();
  }

  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

bool comes(const std::function<bool()>& there) {
  for (int i = 0; i < 5000 && !there(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return there();
}

// How much of `piece`, again and again, the server's system takes, `most` bytes at most, until it
// has taken none for a while; closed: until the connection is.
struct Flood {
  size_t taken = 0;
  bool closed = false;
};
Flood flood(Socket& socket, const std::string& piece, size_t max) {
  Flood flood;
  const timeval patience{0, 300'000};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  while (flood.taken < max) {
    const ssize_t taken = ::send(socket.fd(), piece.data(), piece.size(), MSG_NOSIGNAL);
    if (taken < 0) {
      flood.closed = errno != EAGAIN;
      break;
    }
    flood.taken += static_cast<size_t>(taken);
  }
  return flood;
}

// More than the system's buffers of a connection hold.
constexpr size_t kFlood = size_t{128} << 20;

// What a client sends while its reply is streamed stays with it.
TEST(HttpServerTest, NothingIsReadDuringAReply) {
  std::shared_ptr<Exchange> stream;
  Running running([&](auto exchange) {
    stream = exchange;
    stream->start_stream("text/plain");
    stream->send("first");
  });
  Socket client(running.port());
  client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(client.receive(), StartsWith("HTTP/1.1 200"));
  EXPECT_LT(flood(client, std::string(1 << 16, 'x'), kFlood).taken, kFlood);
  running.server().post([&] {
    stream->send("second");
    std::exchange(stream, nullptr)->end();
  });
  std::string received;
  while (received.find("\r\n0\r\n") == received.npos) {
    const std::string part = client.receive();
    ASSERT_FALSE(part.empty()) << received;
    received += part;
  }
  EXPECT_THAT(received, HasSubstr("second"));
}

// Requests on end from one that reads no reply.
TEST(HttpServerTest, NothingIsReadWhileRepliesAreUnread) {
  const std::string body(100'000, 'b');
  Running running([&](auto exchange) { exchange->reply(200, "text/plain", body); });
  Socket client(running.port());
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
  EXPECT_LT(flood(client, requests, kFlood).taken, kFlood);
}

// Before the handler is asked.
TEST(HttpServerTest, RequestsThatAreNoHttpGetJson) {
  Running running([](auto exchange) { exchange->reply(200, "text/plain", "never"); },
                  {.max_body_bytes = 1000, .max_header_bytes = 2000});
  const auto received = [&](const std::string& request) {
    Socket client(running.port());
    client.send(request);
    return client.receive_all();
  };
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string many(2000, 'x');
  const std::string body = "at most 1000 bytes", headers = "at most 2000 bytes of headers";
  struct Refused {
    std::string request;
    int status;
    std::string message;
  };
  const Refused all[] = {
      {post + "Content-Length: 1001\r\n\r\n", 413, body},
      {post + "Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n", 413, body},
      {post + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n", 413, body},
      {"POST / HTTP/1.0\r\nContent-Length: 1001\r\n\r\n", 413, body},
      {post + "X: " + many + "\r\n\r\n", 431, headers},
      {"GET /" + many + " HTTP/1.1\r\nHost: h\r\n\r\n", 414, "at most 2000 bytes"},
      {"no HTTP\r\n\r\n", 400, "HTTP/1.1"},
      {post + "Content-Length: many\r\n\r\n", 400, "found 'many'"},
      {post + "Content-Length: 5\r\nExpect: more\r\n\r\n", 417, "Expectation Failed"}};
  for (const Refused& refused : all) {
    const std::string reply = received(refused.request);
    SCOPED_TRACE(refused.request.substr(0, 100) + reply);
    ASSERT_THAT(reply, StartsWith("HTTP/1."));
    EXPECT_EQ(reply.substr(9, 3), std::to_string(refused.status));
    EXPECT_THAT(reply, HasSubstr("\r\nContent-Type: application/json\r\n"));
    const auto error = nlohmann::json::parse(reply.substr(reply.find("\r\n\r\n")), nullptr, false);
    ASSERT_TRUE(error.is_object());
    EXPECT_EQ(error["error"]["type"], "invalid_request_error");
    EXPECT_THAT(error["error"]["message"].get<std::string>(), HasSubstr(refused.message));
  }
}

// A second request in the body of one whose length is in doubt is never answered.
TEST(HttpServerTest, NoRequestIsSmuggled) {
  std::atomic<int> asked = 0;
  Running running([&](auto exchange) {
    ++asked;
    exchange->reply(200, "text/plain", "never");
  });
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string second = "GET /second HTTP/1.1\r\nHost: h\r\n\r\n";
  const std::string chunks = "0\r\n\r\n" + second;
  for (const std::string& request :
       {post + "Content-Length: 0\r\nContent-Length: 39\r\n\r\n" + second,
        post + "Content-Length: 39\r\nContent-Length: 0\r\n\r\n" + second,
        post + "Content-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
        post + "Content-Length: 44\r\nTransfer-Encoding : chunked\r\n\r\n" + chunks,
        post + "Content-Length: 44\r\nTransfer-Encoding:\x0b" + "chunked\r\n\r\n" + chunks,
        post + "Content-Length: 44\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n" + chunks}) {
    Socket client(running.port());
    client.send(request);
    const std::string all = client.receive_all();
    SCOPED_TRACE(request + all);
    EXPECT_THAT(all, StartsWith("HTTP/1.1 400 "));
    EXPECT_EQ(all.find("HTTP/1.1", 1), all.npos);  // one reply
    EXPECT_THAT(all, HasSubstr("\r\nConnection: close\r\n"));
  }
  EXPECT_EQ(asked, 0);
}

// Also when the body turns out wrong after it.
TEST(HttpServerTest, ContinueIsSentOnlyWhereTheBodyIsAwaited) {
  Running running([](auto exchange) { exchange->reply(200, "text/plain", exchange->body()); });
  const std::string post =
      "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-continue\r\n";
  Socket waits(running.port());
  waits.send(post + "Content-Length: 3\r\n\r\n");
  EXPECT_EQ(waits.receive(), "HTTP/1.1 100 Continue\r\n\r\n");
  waits.send("abc");
  EXPECT_THAT(waits.receive_all(), StartsWith("HTTP/1.1 200 OK\r\n"));
  Socket has_sent(running.port());
  has_sent.send(post + "Content-Length: 3\r\n\r\nabc");
  EXPECT_THAT(has_sent.receive_all(), StartsWith("HTTP/1.1 200 OK\r\n"));
  Socket wrong(running.port());
  wrong.send(post + "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(wrong.receive(), "HTTP/1.1 100 Continue\r\n\r\n");
  wrong.send("no size\r\n");
  const std::string all = wrong.receive_all();
  EXPECT_THAT(all, StartsWith("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(all, HasSubstr("\r\nContent-Type: application/json\r\n"));
}

// One that sends a byte now and then, in the head or the body, is cut in time; one that is slow but
// goes on is served.
TEST(HttpServerTest, SlowSendersAreCut) {
  Running running([](auto exchange) { exchange->reply(200, "text/plain", "served"); },
                  {.idle_seconds = 30, .head_seconds = 1, .body_seconds = 1});
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n";
  struct Slow {
    std::string at_once, piece;
    int pieces;
    const char* reply;
  };
  const Slow all[] = {
      {post, "x", 100, "HTTP/1.1 408 "},
      {"\r\n", "\r\n", 100, "HTTP/1.1 408 "},
      {post + "Content-Length: 100\r\n\r\n", "x", 100, "HTTP/1.1 408 "},
      {post + "Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", 100, "HTTP/1.1 408 "},
      {post + "Content-Length: 320000\r\n\r\n", std::string(20'000, 'x'), 16, "HTTP/1.1 200 "},
  };
  std::vector<std::thread> clients;
  for (const Slow& slow : all) {
    clients.emplace_back([&] {
      Socket client(running.port());
      client.send(slow.at_once);
      int sent = 0;
      for (; sent < slow.pieces; ++sent) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        if (::send(client.fd(), slow.piece.data(), slow.piece.size(), MSG_NOSIGNAL) < 0) break;
      }
      EXPECT_THAT(client.receive_all(), StartsWith(slow.reply)) << slow.at_once + slow.piece;
      EXPECT_EQ(sent == slow.pieces, slow.pieces < 100);
    });
  }
  for (std::thread& each : clients) each.join();
}

TEST(HttpServerTest, RepliesHaveADate) {
  Running running([](auto exchange) { exchange->reply(200, "text/plain", "x"); });
  EXPECT_THAT(ask(running.port(), "GET", "/").head,
              testing::ContainsRegex("\r\nDate: [A-Z][a-z]+, [0-9]+ [A-Z][a-z]+ 20[0-9]+ "
                                     "[0-9]+:[0-9]+:[0-9]+ GMT\r\n"));
}

// The client sees the reply although it has sent more than was read.
TEST(HttpServerTest, RepliesArriveWhatEverFollowsTheRequest) {
  Running running([](auto exchange) { exchange->reply(200, "text/plain", "whole"); });
  for (int i = 0; i < 20; ++i) {
    Socket client(running.port());
    client.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" +
                std::string(100'000, 'x'));
    EXPECT_THAT(client.receive_all(), testing::EndsWith("whole"));
  }
}

TEST(HttpServerTest, EndlessChunkLengthsAreCut) {
  Running running([](auto exchange) { exchange->reply(200, "text/plain", "never"); },
                  {.max_body_bytes = 1 << 20});
  Socket client(running.port());
  client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  const Flood all = flood(client, std::string(1 << 16, '1'), kFlood);
  EXPECT_LT(all.taken, kFlood);
  EXPECT_TRUE(all.closed);
}

// In one piece, in chunks, one after the other on a connection without waiting.
TEST(HttpServerTest, TheLargestBodiesArrive) {
  const HttpOptions options;
  Running running([](auto exchange) {
    exchange->reply(200, "text/plain", std::to_string(exchange->body().size()) + " bytes");
  });
  const std::string body(options.max_body_bytes, 'b');
  const std::string size = std::to_string(body.size());
  EXPECT_EQ(ask(running.port(), "POST", "/", body).body, size + " bytes");
  const std::string chunked = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", body.size(), body);
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  Socket client(running.port());
  std::thread sends([&] {
    for (int i = 0; i < 2; ++i) {
      client.send(head + "Content-Length: " + size + "\r\n\r\n" + body);
      client.send(head + "Transfer-Encoding: chunked\r\n" +
                  (i == 1 ? "Connection: close\r\n\r\n" : "\r\n") + chunked);
    }
  });
  const std::string all = client.receive_all();
  sends.join();
  size_t arrived = 0;
  for (size_t at = all.find(size); at != all.npos; at = all.find(size, at + 1)) ++arrived;
  EXPECT_EQ(arrived, 4u) << all;
}

// Its reply may be minutes away.
TEST(HttpServerTest, AClientThatLeavesBeforeTheReplyIsNoticed) {
  std::shared_ptr<Exchange> waits;
  std::atomic<int> gone = 0, asked = 0;
  Running running([&](auto exchange) {
    waits = exchange;
    exchange->on_gone([&] { ++gone; });
    ++asked;
  });
  const std::string request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";
  {
    Socket client(running.port());
    client.send(request);
    ASSERT_TRUE(comes([&] { return asked == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(gone, 0);
  }
  EXPECT_TRUE(comes([&] { return gone == 1; }));
  {  // with more that has not been read, and a reset
    Socket client(running.port());
    client.send(request + request);
    ASSERT_TRUE(comes([&] { return asked == 2; }));
    const linger at_once{1, 0};
    ::setsockopt(client.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }
  EXPECT_TRUE(comes([&] { return gone == 2; }));
  std::promise<void> done;
  running.server().post([&] {
    EXPECT_TRUE(waits->gone());
    waits->reply(200, "text/plain", "to nobody");
    waits.reset();
    done.set_value();
  });
  done.get_future().wait();
}

// What it has sent meanwhile is the next request.
TEST(HttpServerTest, PipelinedRequestsAreAnsweredInTurn) {
  std::vector<std::shared_ptr<Exchange>> waiting;
  std::atomic<int> asked = 0;
  Running running([&](auto exchange) {
    waiting.push_back(exchange);
    ++asked;
  });
  Socket client(running.port());
  client.send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
  for (int i = 1; i <= 2; ++i) {
    ASSERT_TRUE(comes([&] { return asked == i; }));
    running.server().post(
        [&] { waiting.back()->reply(200, "text/plain", "to " + waiting.back()->path()); });
    EXPECT_THAT(client.receive(), HasSubstr("to /" + std::to_string(i)));
  }
}

TEST(HttpServerTest, PathsAreDecodedAndTargetsAsTheyCame) {
  Running running([](auto exchange) {
    exchange->reply(200, "text/plain",
                    exchange->method() + " " + exchange->path() + " of " + exchange->target());
  });
  EXPECT_EQ(ask(running.port(), "GET", "/a%20b%2fc+d?e=%20f").body,
            "GET /a b/c+d of /a%20b%2fc+d?e=%20f");
  EXPECT_EQ(ask(running.port(), "DELETE", "/x").body, "DELETE /x of /x");
}

// What libevent has to say is a line as all others are, also in JSON.
TEST(HttpServerTest, LibeventHasNoLinesOfItsOwn) {
  Running running([](auto exchange) { exchange->reply(200, "text/plain", ""); });
  log::set_form(log::Form::kJson);
  testing::internal::CaptureStderr();
  event_base* loop = event_base_new();
  event* wrong = event_new(loop, 1 << 20, EV_READ, [](int, short, void*) {}, nullptr);
  event_add(wrong, nullptr);  // of a descriptor that there is not
  const std::string logged = testing::internal::GetCapturedStderr();
  log::set_form(log::Form::kBare);
  event_free(wrong);
  event_base_free(loop);
  EXPECT_THAT(logged, StartsWith("{\"time\":\""));
  EXPECT_THAT(logged, HasSubstr("\"level\":\"warning\",\"message\":\"http: Epoll"));
}

// Connections that find no descriptor wait, at no cost, and are logged once.
TEST(HttpServerTest, WithoutDescriptorsConnectionsWait) {
  if (base::kSanitized) GTEST_SKIP() << "the sanitizer wants descriptors of its own";
  Running running([](auto exchange) { exchange->reply(200, "text/plain", "here"); });
  std::vector<std::unique_ptr<Socket>> sockets;
  for (int i = 0; i < 20; ++i) sockets.push_back(std::make_unique<Socket>(running.port()));
  Socket late_one(running.port(), Socket::kUnconnected),
      late_two(running.port(), Socket::kUnconnected);
  EXPECT_EQ(ask(running.port(), "GET", "/").body, "here");  // all before have been accepted
  testing::internal::CaptureStderr();
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = ::dup(0);
  ::close(lowest_free);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(lowest_free);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  late_one.connect();
  late_two.connect();
  timespec cpu{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  const double used_before =
      static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9;
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  const double used =
      static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9 - used_before;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const std::string logged = testing::internal::GetCapturedStderr();
  EXPECT_LT(used, 0.2);
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 1) << logged.substr(0, 1000);
  EXPECT_THAT(logged, HasSubstr("cannot accept a connection"));
  for (Socket* each : {&late_one, &late_two}) {
    each->send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_THAT(each->receive(), StartsWith("HTTP/1.1 200"));
  }
}

TEST(OpenFilesTest, AsManyAsTheSystemAllows) {
  rlimit before = {}, after = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = before.rlim_max / 2;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  allow_most_open_files();
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

// Idle connections are closed; one that waits for its reply is not idle.
TEST(HttpServerTest, WaitingForAReplyIsNotIdle) {
  std::vector<std::shared_ptr<Exchange>> waiting;
  const auto server = HttpServer::listen({.port = 0, .idle_seconds = 1}, [&](auto exchange) {
                        waiting.push_back(exchange);
                      }).value();
  server->call_every(1800, [&] {
    for (const auto& each : waiting) each->reply(200, "text/plain", "late");
    waiting.clear();
  });
  std::thread thread([&] { server->run(); });
  Socket idle(server->port()), patient(server->port());
  patient.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(idle.receive(), "");
  EXPECT_THAT(patient.receive(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(patient.receive(), "");  // and a second later
  server->stop();
  thread.join();
}

// Parts sent in one pass of the event loop are one chunk, those before the end too; HTTP/1.0 has no
// chunks.
TEST(HttpServerTest, PartsOfOnePassLeaveInOneWrite) {
  std::vector<std::shared_ptr<Exchange>> streams;
  const auto server = HttpServer::listen({.port = 0}, [&](auto exchange) {
                        streams.push_back(exchange);
                        exchange->start_stream("text/plain");
                        exchange->send("first ");
                        exchange->send("turn");
                      }).value();
  server->call_every(300, [&] {
    for (const auto& each : streams) {
      each->send(std::string(300, 'x'));
      each->send(" and the ");
      each->send("end");
      each->end();
    }
    streams.clear();
  });
  std::thread thread([&] { server->run(); });
  const auto body = [&](const char* version) {
    Socket socket(server->port());
    socket.send(std::string("GET / ") + version + "\r\nHost: h\r\nConnection: close\r\n\r\n");
    const std::string all = socket.receive_all();
    return all.substr(all.find("\r\n\r\n") + 4);
  };
  const std::string last = std::string(300, 'x') + " and the end";
  EXPECT_EQ(body("HTTP/1.1"), "a\r\nfirst turn\r\n138\r\n" + last + "\r\n0\r\n\r\n");
  EXPECT_EQ(body("HTTP/1.0"), "first turn" + last);
  server->stop();
  thread.join();
}

// Whatever the socket takes at once: the bytes come, all and in order.
TEST(HttpServerTest, AReaderThatPausesMissesNothing) {
  std::shared_ptr<Exchange> stream;
  const auto server = HttpServer::listen({.port = 0}, [&](auto exchange) {
                        stream = exchange;
                        stream->start_stream("text/plain");
                      }).value();
  constexpr int kParts = 3000;
  int sent = 0;
  server->call_every(1, [&] {
    for (int i = 0; stream != nullptr && i < 100; ++i) {
      if (sent == kParts) {
        stream->end();
        stream = nullptr;
        return;
      }
      stream->send(std::string(1000, static_cast<char>('a' + sent++ % 26)));
    }
  });
  std::thread thread([&] { server->run(); });
  Socket socket(server->port());
  socket.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::string all = socket.receive_all();
  const std::string text = without_chunk_lengths(all.substr(all.find("\r\n\r\n") + 4));
  ASSERT_EQ(text.size(), size_t{kParts} * 1000);
  for (size_t i = 0; i < kParts; ++i)
    EXPECT_EQ(text[i * 1000 + 999], 'a' + static_cast<int>(i % 26));
  server->stop();
  thread.join();
}

// A write to a connection that its client has reset would raise SIGPIPE: an error like another,
// without a handler for the whole process.
TEST(HttpServerTest, ClientsThatHaveLeftEndNothing) {
  ASSERT_NE(::signal(SIGPIPE, SIG_DFL), SIG_ERR);
  std::shared_ptr<Exchange> stream;
  const auto server = HttpServer::listen({.port = 0}, [&](auto exchange) {
                        stream = exchange;
                        stream->start_stream("text/plain");
                        stream->send("first ");
                      }).value();
  std::thread thread([&] { server->run(); });
  const auto ask = [&](Socket& socket) { socket.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"); };
  for (int i = 0; i < 5; ++i) {
    std::promise<void> holds, closed;
    {
      Socket leaves(server->port());
      ask(leaves);
      EXPECT_THAT(leaves.receive(1), "H");  // the rest is unread, which resets the connection
      server->post([&] {
        holds.set_value();
        closed.get_future().wait();
        stream->send("second");
      });
      holds.get_future().wait();
    }
    closed.set_value();
    std::promise<void> done;  // the turn after the one that has written
    server->post([&] { server->post([&] { done.set_value(); }); });
    done.get_future().wait();
  }
  Socket stays(server->port());
  ask(stays);
  EXPECT_THAT(stays.receive(), StartsWith("HTTP/1.1 200"));
  server->stop();
  thread.join();
}

TEST(HttpServerTest, AddressesInUseAreNamed) {
  const auto first = HttpServer::listen({.port = 0}, [](auto) {});
  ASSERT_TRUE(first.ok());
  const auto second = HttpServer::listen({.port = (*first)->port()}, [](auto) {});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(),
              HasSubstr("Address already in use; choose another --port"));
}

// A message names what is wrong with the host, whichever call it is that fails.
TEST(HttpServerTest, HostsThatCannotBeUsedAreNamed) {
  for (const char* host : {"no such host", "1.2.3.4.5", "192.0.2.1", "::g", "https://h"}) {
    const auto server = HttpServer::listen({.host = host, .port = 0}, [](auto) {});
    ASSERT_FALSE(server.ok()) << host;
    const std::string message = server.status().message();
    EXPECT_THAT(message, HasSubstr(std::string("cannot listen on ") + host));
    EXPECT_THAT(message, HasSubstr("choose a --host"));
    EXPECT_EQ(message.find("Success"), message.npos) << message;
  }
}

// ---- what all connections hold together ----

std::string post_of(size_t bytes) {
  return "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n";
}

TEST(HttpServerTest, BodiesTogetherAreBounded) {
  constexpr size_t kMax = size_t{1} << 20, kBody = 600'000;
  Running running([](auto exchange) { exchange->reply(200, "text/plain", "done"); },
                  {.max_request_bytes_of_all = kMax});
  Socket first(running.port()), second(running.port());
  first.send(post_of(kBody) + std::string(kBody - 1, 'x'));
  second.send(post_of(kBody) + std::string(kBody - 1, 'x'));
  // The server reads from both by turns: it refuses the one whose bytes are one part too many.
  pollfd replies[] = {{first.fd(), POLLIN, 0}, {second.fd(), POLLIN, 0}};
  ASSERT_EQ(::poll(replies, 2, 60'000), 1);
  Socket& refused = replies[0].revents != 0 ? first : second;
  Socket& kept = replies[0].revents != 0 ? second : first;
  const std::string reply = refused.receive_all();
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(reply, HasSubstr("\r\nRetry-After: 1\r\n"));
  EXPECT_THAT(reply, HasSubstr("too_many_request_bytes"));
  EXPECT_EQ(ask(running.port(), "POST", "/", std::string(1000, 'y')).status, 200);  // a small one
  kept.send("x");
  EXPECT_THAT(kept.receive(), StartsWith("HTTP/1.1 200"));
  Socket third(running.port());  // there is room again
  third.send(post_of(kBody) + std::string(kBody, 'x'));
  EXPECT_THAT(third.receive(), StartsWith("HTTP/1.1 200"));
}

// An accepted connection with small buffers of the system, as a keeper would pass it on.
class KeptConnection {
 public:
  KeptConnection() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    client_.emplace(ntohs(address.sin_port), Socket::kUnconnected);
    const int bytes = 16 << 10;
    ::setsockopt(client_->fd(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    client_->connect();
    socket_ = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    ::close(listener);
  }
  Socket& client() { return *client_; }
  // On the server's thread.
  void pass_to(HttpServer& server) {
    const Result<int> memory = ConnectionJournal::create(socket_);
    EXPECT_TRUE(memory.ok());
    server.adopt(socket_, ConnectionJournal::open(*memory, socket_).value(), 1);
  }

 private:
  std::optional<Socket> client_;
  int socket_ = -1;
};

// What is read is in the journal and in the request, and replies in the journal and the queue.
TEST(HttpServerTest, JournalsCount) {
  constexpr size_t kBody = 1'000'000, kReply = 8'000'000;
  std::shared_ptr<Exchange> waits;
  Running running([&](auto exchange) { waits = exchange; });
  const auto totals = [&] {
    std::promise<ConnectionTotals> found;
    running.server().post([&] { found.set_value(running.server().totals()); });
    return found.get_future().get();
  };
  KeptConnection connection;
  running.server().post([&] { connection.pass_to(running.server()); });
  connection.client().send(post_of(kBody) + std::string(kBody - 1, 'x'));
  EXPECT_TRUE(comes([&] { return totals().requests >= 2 * kBody; }));
  connection.client().send("x");
  EXPECT_TRUE(comes([&] {
    std::promise<bool> has_come;
    running.server().post([&] { has_come.set_value(waits != nullptr); });
    return has_come.get_future().get();
  }));
  EXPECT_GE(totals().requests, 2 * kBody);
  EXPECT_LT(totals().requests, 2 * kBody + 10'000);
  running.server().post([&] {
    const std::string body = waits->take_body();
    waits->hold(100);
  });
  EXPECT_LT(totals().requests, kBody + 10'000);
  running.server().post(
      [&] { std::exchange(waits, nullptr)->reply(200, "text/plain", std::string(kReply, 'y')); });
  EXPECT_GT(totals().unread, kReply * 3 / 2);
  EXPECT_EQ(totals().requests, 0u);
}

// Who has left most unread goes; the others get their replies whole.
TEST(HttpServerTest, UnreadRepliesTogetherAreBounded) {
  constexpr size_t kMax = size_t{64} << 20;
  const std::string large(size_t{80} << 20, 'x'), small(size_t{1} << 20, 'y');
  Running running(
      [&](auto exchange) {
        exchange->reply(200, "text/plain", exchange->path() == "/large" ? large : small);
      },
      {.max_unread_bytes_of_all = kMax});
  const auto ask_for = [](Socket& socket, const char* path) {
    socket.send(std::string("GET ") + path + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  };
  Socket patient(running.port()), greedy(running.port());
  ask_for(patient, "/small");
  EXPECT_EQ(ask(running.port(), "GET", "/small").body, small);
  ask_for(greedy, "/large");
  EXPECT_LT(greedy.receive_all().size(), large.size());
  EXPECT_GT(patient.receive_all().size(), small.size());
  EXPECT_EQ(ask(running.port(), "GET", "/small").body, small);
}

// Those whose requests are being answered stay; others wait for them.
TEST(HttpServerTest, ConnectionsAreBounded) {
  std::vector<std::shared_ptr<Exchange>> waiting;
  Running running([&](auto exchange) { waiting.push_back(exchange); }, {.max_connections = 2});
  const auto num_waiting = [&] {
    std::promise<size_t> found;
    running.server().post([&] { found.set_value(waiting.size()); });
    return found.get_future().get();
  };
  // One after the other: of two whose requests have not come yet, one makes room for the other.
  const std::string request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
  Socket first(running.port());
  first.send(request);
  EXPECT_TRUE(comes([&] { return num_waiting() == 1; }));
  Socket second(running.port());
  second.send(request);
  EXPECT_TRUE(comes([&] { return num_waiting() == 2; }));
  Socket third(running.port());
  third.send(request);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(num_waiting(), 2u);
  running.server().post([&] {
    for (const auto& each : std::exchange(waiting, {})) each->reply(200, "text/plain", "done");
  });
  for (Socket* each : {&first, &second}) EXPECT_THAT(each->receive(), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(comes([&] { return num_waiting() == 1; }));
  running.server().post([&] { waiting.clear(); });
  EXPECT_THAT(third.receive(), StartsWith("HTTP/1.1 500"));  // no reply
}

// However many say nothing, or nothing more, and whether the server accepts them or a keeper does.
TEST(HttpServerTest, IdleConnectionsMakeRoom) {
  constexpr size_t kMax = 64;
  Running running([](auto exchange) { exchange->reply(200, "text/plain", "done"); },
                  {.max_connections = kMax});
  std::vector<std::unique_ptr<Socket>> silent;
  Socket asks(running.port());
  const auto ask_once_more = [&] {
    asks.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    return asks.receive();
  };
  for (size_t i = 0; i < 4 * kMax; ++i) {
    silent.push_back(std::make_unique<Socket>(running.port()));
    if (i % 16 != 0) continue;
    // Connections are taken in order: behind this one none is left that would all come at once.
    EXPECT_EQ(ask(running.port(), "GET", "/").status, 200);
    EXPECT_THAT(ask_once_more(), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_EQ(ask(running.port(), "GET", "/").status, 200);
  EXPECT_EQ(silent.front()->receive(), "");  // closed
  char byte = 0;
  EXPECT_LT(::recv(silent.back()->fd(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_EQ(errno, EAGAIN);
  std::vector<std::unique_ptr<KeptConnection>> kept;
  for (size_t i = 0; i < 2 * kMax; ++i) {
    kept.push_back(std::make_unique<KeptConnection>());
    running.server().post([&, last = kept.back().get()] { last->pass_to(running.server()); });
  }
  kept.back()->client().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_THAT(kept.back()->client().receive(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(kept.front()->client().receive(), "");
}

TEST(HttpServerTest, ForeignHostsAndPagesAreRefused) {
  Running running([](auto exchange) { exchange->reply(200, "text/plain", exchange->body()); },
                  {.guards_hosts = true, .guards_origins = true});
  const auto status = [&](const std::string& headers, const std::string& body = "x") {
    Socket client(running.port());
    client.send("POST /scale_elastic_ep HTTP/1.1\r\nConnection: close\r\n" + headers +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.receive_all().substr(9, 3);
  };
  const std::string own = "Host: 127.0.0.1:" + std::to_string(running.port()) + "\r\n";
  EXPECT_EQ(status(own), "200");
  EXPECT_EQ(status("Host: localhost\r\n"), "200");
  EXPECT_EQ(status("Host: evil.example\r\n"), "403");
  EXPECT_EQ(status(own + "Origin: https://evil.example\r\nContent-Type: text/plain\r\n"), "403");
  EXPECT_EQ(status(own + "Origin: http://127.0.0.1:" + std::to_string(running.port()) + "\r\n"),
            "200");
  EXPECT_EQ(status(own + "Origin: https://evil.example\r\n", std::string(100'000, 'x')), "403");
}

}  // namespace
}  // namespace wideep::server
