// SPDX-License-Identifier: Apache-2.0
//
// The client against servers that refuse, are silent or send without end. What of an event's form
// and of a reply's end goes wrong is tested through bench serving, which counts it
// (measure/serving/serving_run_test.cc).
#include "client/event_stream.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/one_reply_testing.h"

namespace wideep::client {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Address, IsParsed) {
  const auto whole = parse_address("http://host:81/base/");
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->host, "host");
  EXPECT_EQ(whole->port, "81");
  EXPECT_EQ(whole->path, "/base");
  EXPECT_EQ(parse_address("http://host")->port, "80");
  const auto v6 = parse_address("http://[::1]:8000");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->port, "8000");
  EXPECT_EQ(v6->authority(), "[::1]:8000");
  EXPECT_EQ(parse_address("http://[::1]")->authority(), "[::1]:80");
  EXPECT_EQ(whole->authority(), "host:81");
  for (const char* wrong : {"host:81", "https://host", "http://", "http://host:x", "http://:80"}) {
    EXPECT_THAT(parse_address(wrong).status().message(), HasSubstr("expected http://")) << wrong;
  }
}

// It would be left out of requests.
TEST(Address, WhatHasNoPlaceInItIsRefused) {
  const std::string user = parse_address("http://me:secret@host/v1").status().message();
  EXPECT_THAT(user, HasSubstr("found a user before the host"));
  EXPECT_THAT(user, testing::Not(HasSubstr("secret")));
  for (const char* wrong : {"http://host/v1?key=x", "http://host/v1#x", "http://host?x"}) {
    EXPECT_THAT(parse_address(wrong).status().message(), HasSubstr("found ? or #")) << wrong;
  }
}

TEST(EventStreams, AnUnknownHostIsAnError) {
  EXPECT_THAT(EventStreams::open({.host = "127.0.0.1", .port = "no port"}, std::chrono::seconds(1))
                  .status()
                  .message(),
              testing::StartsWith("127.0.0.1: "));
}

// A listener that never accepts: the kernel completes the connection, and then nothing arrives.
TEST(EventStreams, SilentServerIsAnErrorAfterPatience) {
  const Listener silent;
  const auto streams =
      EventStreams::open({.host = "127.0.0.1", .port = silent.port()}, std::chrono::seconds(1));
  Status end;
  (*streams)->post("/", "{}", nullptr, [&](const Status& status) { end = status; });
  while ((*streams)->under_way() > 0) (*streams)->wait(std::chrono::seconds(10));
  EXPECT_EQ(end.message(), "the server sent nothing for 1 s");
}

// What came of one request to a server that sends `reply`.
struct Outcome {
  std::vector<std::string> events;
  Refusal refusal;
  Status end;
  std::string request;
};
Outcome outcome_of(const std::string& reply, EventStreams::Call call,
                   EventStreams::Limits limits = {}) {
  OneReply server(reply, 1 << 16);
  Outcome outcome;
  const auto streams = EventStreams::open({.host = "127.0.0.1", .port = server.port()},
                                          std::chrono::seconds(60), limits);
  call.path = "/v1/x";
  call.on_event = [&](std::string_view data) { outcome.events.emplace_back(data); };
  call.on_end = [&](const Status& status) { outcome.end = status; };
  call.on_refusal = [&](const Refusal& refusal) { outcome.refusal = refusal; };
  (*streams)->send(std::move(call));
  while ((*streams)->under_way() > 0) (*streams)->wait(std::chrono::seconds(10));
  outcome.request = server.request();
  return outcome;
}

TEST(EventStreams, GetsWithoutABody) {
  const Outcome outcome =
      outcome_of("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", {.whole = true});
  EXPECT_TRUE(outcome.end.ok()) << outcome.end.message();
  EXPECT_THAT(outcome.events, testing::ElementsAre("{}"));
  EXPECT_THAT(outcome.request, StartsWith("GET /v1/x HTTP/1.1\r\n"));
  EXPECT_THAT(outcome.request, testing::Not(HasSubstr("Content-Type")));
}

TEST(EventStreams, ARefusalIsHandedOver) {
  const Outcome refused = outcome_of(
      "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy",
      {.body = "{}"});
  EXPECT_EQ(refused.end.message(), "status 429: busy");
  EXPECT_EQ(refused.refusal.status, 429);
  EXPECT_EQ(refused.refusal.body, "busy");
  EXPECT_EQ(refused.refusal.retry_after, "7");
  EXPECT_THAT(refused.request, StartsWith("POST /v1/x HTTP/1.1\r\n"));
  const Outcome empty = outcome_of("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", {.body = "{}"});
  EXPECT_EQ(empty.refusal.status, 401);
  EXPECT_EQ(empty.refusal.body, "");
}

TEST(EventStreams, WhatHasNoEndIsEnded) {
  const std::string much(3 << 20, 'x');
  const EventStreams::Limits limits{.event_bytes = 1 << 20, .whole_bytes = 2 << 20};
  const std::string head = "HTTP/1.1 200 OK\r\n";
  const auto end_of = [&](const std::string& reply, bool whole) {
    return outcome_of(reply, {.body = "{}", .whole = whole}, limits).end.message();
  };
  const std::string too_long = "the server has sent an event, a line or a chunk of more than 1 MiB";
  EXPECT_EQ(end_of(head + "\r\ndata: " + much, false), too_long);
  EXPECT_EQ(end_of(head + "Transfer-Encoding: chunked\r\n\r\nffffffff\r\n" + much, false),
            too_long);
  EXPECT_EQ(end_of(head + "Transfer-Encoding: chunked\r\n\r\n" + much, false), too_long);
  EXPECT_EQ(end_of(head + "\r\n" + much, true), "the reply has more than 2 MiB");
  EXPECT_NE(end_of(head + "X: " + much, true), "");  // a header
  EXPECT_EQ(end_of(head + "\r\n" + much.substr(0, 1 << 20), true), "");
}

// The server stops as soon as it notices, long before the 20 s that it would take.
TEST(EventStreams, AreClosedBeforeTheirEnd) {
  OneReply server("HTTP/1.1 200 OK\r\n\r\ndata: x\n\n" + std::string(100'000, ':'), 1);
  int events = 0;
  bool ended = false;
  {
    const auto streams =
        EventStreams::open({.host = "127.0.0.1", .port = server.port()}, std::chrono::seconds(60));
    (*streams)->post(
        "/", "{}", [&](std::string_view) { ++events; }, [&](const Status&) { ended = true; });
    while (events == 0 && !ended) (*streams)->wait(std::chrono::seconds(10));
  }
  EXPECT_EQ(events, 1);
  EXPECT_FALSE(ended);
}

}  // namespace
}  // namespace wideep::client
