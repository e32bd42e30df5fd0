// SPDX-License-Identifier: Apache-2.0
#include "server/exchange_work.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>

namespace wideep::server {
namespace {

class NoWire : public ReplyWire {
 public:
  void write(std::string_view) override {}
  void write_at_once(std::string_view) override {}
  void flush_later(std::shared_ptr<Exchange>) override {}
  void end_reply(bool) override {}
  void disconnect() override {}
};

// A body waits behind another one whose work takes long.
TEST(ExchangeWorkTest, WhatWaitsIsDroppedWhenItsClientLeaves) {
  NoWire wire;
  ExchangeWork work;
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
  ExchangeWork work;
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

}  // namespace
}  // namespace wideep::server
