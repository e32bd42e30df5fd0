// SPDX-License-Identifier: Apache-2.0
#include "server/exchange_work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>

namespace wideep::server {
namespace {

class NoWire : public ReplyWire {
 public:
  void write(std::string_view bytes) override { written += bytes; }
  void write_at_once(std::string_view bytes) override { written += bytes; }
  void flush_later(std::shared_ptr<Exchange>) override {}
  void end_reply(bool) override {}
  void disconnect() override {}

  std::string written;
};

// A body waits behind another one whose work takes long.
TEST(ExchangeWorkTest, WhatWaitsIsDroppedWhenItsClientLeaves) {
  NoWire wire;
  Metrics metrics;
  Replies replies(metrics);
  ExchangeWork work(replies);
  std::promise<std::function<void()>> posted;
  work.connect([&](std::function<void()> call) { posted.set_value(std::move(call)); });
  const auto stays = std::make_shared<Exchange>(wire, RequestHead(), "");
  auto leaves = std::make_shared<Exchange>(wire, RequestHead(), "");
  std::promise<void> goes_on;
  work.add(stays, [&] {
    goes_on.get_future().wait();
    return [](const std::shared_ptr<Exchange>& each) { each->reply(200, "", ""); };
  });
  auto body = std::make_shared<std::string>("body");
  const std::weak_ptr<std::string> held = body;
  work.add(leaves, [body]() -> ExchangeWork::Rest {
    ADD_FAILURE() << *body;
    return [](const std::shared_ptr<Exchange>&) {};
  });
  body.reset();
  EXPECT_EQ(work.size(), 2u);
  EXPECT_FALSE(held.expired());
  const std::weak_ptr<Exchange> exchange = leaves;
  leaves->detach();
  leaves.reset();
  EXPECT_TRUE(held.expired());
  EXPECT_TRUE(exchange.expired());
  EXPECT_EQ(work.size(), 1u);
  goes_on.set_value();
  posted.get_future().get()();
  EXPECT_TRUE(stays->gone());  // it has its reply
  EXPECT_EQ(work.size(), 0u);
  work.join();
}

// It may leave while its body is worked on.
TEST(ExchangeWorkTest, WhoHasLeftGetsNothing) {
  NoWire wire;
  Metrics metrics;
  Replies replies(metrics);
  ExchangeWork work(replies);
  std::promise<std::function<void()>> posted;
  work.connect([&](std::function<void()> call) { posted.set_value(std::move(call)); });
  const auto leaves = std::make_shared<Exchange>(wire, RequestHead(), "");
  work.add(leaves, [] { return [](const std::shared_ptr<Exchange>&) { ADD_FAILURE(); }; });
  const auto rest = posted.get_future().get();
  leaves->detach();
  rest();
  EXPECT_EQ(work.size(), 0u);
  work.join();
}

// On either thread; the next work is done as if nothing had been.
TEST(ExchangeWorkTest, AnExceptionEndsOneExchangeOnly) {
  NoWire wires[3];
  Metrics metrics;
  Replies replies(metrics);
  ExchangeWork work(replies);
  const ExchangeWork::Work fails = []() -> ExchangeWork::Rest {
    throw std::runtime_error("two\nlines");
  };
  const auto exchange_to = [](NoWire& wire) {
    return std::make_shared<Exchange>(wire, RequestHead(), "");
  };
  testing::internal::CaptureStderr();
  work.do_at_once(exchange_to(wires[0]), fails);
  std::promise<std::function<void()>> posted[2];
  int next = 0;
  work.connect([&](std::function<void()> call) { posted[next++].set_value(std::move(call)); });
  work.add(exchange_to(wires[1]), fails);
  work.add(exchange_to(wires[2]), [] {
    return [](const std::shared_ptr<Exchange>& each) { each->reply(200, "", "fine"); };
  });
  for (auto& each : posted) each.get_future().get()();
  const std::string log = testing::internal::GetCapturedStderr();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(wires[i].written.starts_with("HTTP/1.1 500 ")) << wires[i].written;
    EXPECT_NE(wires[i].written.find("internal_error"), std::string::npos) << wires[i].written;
  }
  EXPECT_TRUE(wires[2].written.starts_with("HTTP/1.1 200 ")) << wires[2].written;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_NE(log.find("two\\nlines"), std::string::npos) << log;
  work.join();
}

}  // namespace
}  // namespace wideep::server
