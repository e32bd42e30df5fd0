// SPDX-License-Identifier: Apache-2.0
#include "server/router_prefixes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <future>
#include <utility>

#include "server/router_prompt_text.h"

namespace wideep::server {
namespace {

using Match = std::shared_ptr<const PromptMatch>;

RouterPrefixes::Body body_of(char letter, size_t bytes) {
  return std::make_shared<const std::string>(R"({"prompt": ")" + std::string(bytes, letter) +
                                             "\"}");
}

Match match(RouterPrefixes& prefixes, const RouterPrefixes::Body& body) {
  std::promise<Match> found;
  EXPECT_TRUE(prefixes.match("/v1/completions", body,
                             [&](Match each) { found.set_value(std::move(each)); }));
  return found.get_future().get();
}

Match match_pages(RouterPrefixes& prefixes, const Match& before, const std::string& reply) {
  std::promise<Match> found;
  EXPECT_TRUE(
      prefixes.match_pages(before, reply, [&](Match each) { found.set_value(std::move(each)); }));
  return found.get_future().get();
}

TEST(RouterPrefixes, WhatWasSentIsKnownUntilItIsForgotten) {
  RouterPrefixes prefixes(2, {});
  const auto body = body_of('a', 2000);
  const Match first = match(prefixes, body);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->known, (std::vector<uint64_t>{0, 0}));
  EXPECT_FALSE(first->is_exact);
  prefixes.sent(first, 1);
  EXPECT_EQ(match(prefixes, body)->known, (std::vector<uint64_t>{0, 1792}));
  prefixes.forget_sent(0);
  EXPECT_EQ(match(prefixes, body)->known, (std::vector<uint64_t>{0, 1792}));
  prefixes.forget_sent(1);
  EXPECT_EQ(match(prefixes, body)->known, (std::vector<uint64_t>{0, 0}));
  EXPECT_EQ(match(prefixes, std::make_shared<const std::string>("{")), nullptr);
}

TEST(RouterPrefixes, PagesCountWhereTheyAreKnown) {
  RouterPrefixes prefixes(3, {});
  const Match before = match(prefixes, body_of('a', 1270));
  prefixes.sent(before, 1);
  prefixes.take_snapshot(0,
                         R"({"sequence": 1, "block_size": 1, "ranks": [
                             {"data_parallel_rank": 0, "blocks": [{"hash": 5}, {"hash": 6}]}]})",
                         [](const auto& position) { EXPECT_TRUE(position.ok()); });
  prefixes.take_snapshot(2, "[]", [](const auto& position) { EXPECT_FALSE(position.ok()); });
  const std::string reply = R"({"prompts": [[1, 2, 3, 4]], "page_hashes": [[5, 6, 7, 8]]})";
  const Match exact = match_pages(prefixes, match(prefixes, body_of('a', 1270)), reply);
  EXPECT_TRUE(exact->is_exact);
  EXPECT_EQ(exact->known, (std::vector<uint64_t>{exact->bytes / 2, 1280, 0}));
  // What it was sent just now counts beside it.
  prefixes.sent(before, 0);
  EXPECT_EQ(match_pages(prefixes, before, reply)->known[0], 1280u);
  prefixes.forget_pages(0);
  prefixes.forget_sent(0);
  EXPECT_EQ(match_pages(prefixes, before, reply)->known[0], 0u);
  for (const char* bad : {"", "{}", R"({"prompts": [[]], "page_hashes": [[]]})"}) {
    EXPECT_EQ(match_pages(prefixes, before, bad), before) << bad;
  }
}

TEST(RouterPrefixes, WhatIsOverTheBoundsOfTheQueueIsDropped) {
  RouterPrefixes prefixes(1, {.max_queue = 2, .max_queue_bytes = 10'000});
  std::promise<void> goes_on;
  const auto waits = [held = goes_on.get_future().share()](const Match&) { held.wait(); };
  const auto nothing = [](const Match&) {};
  EXPECT_FALSE(prefixes.match("/v1/completions", body_of('a', 20'000), nothing));
  EXPECT_TRUE(prefixes.match("/v1/completions", body_of('a', 6'000), waits));
  EXPECT_FALSE(prefixes.match("/v1/completions", body_of('a', 6'000), nothing));
  EXPECT_TRUE(prefixes.match("/v1/completions", body_of('a', 1'000), nothing));
  EXPECT_FALSE(prefixes.match("/v1/completions", body_of('a', 1'000), nothing));
  prefixes.forget_sent(0);  // what replicas do is not dropped
  goes_on.set_value();
}

}  // namespace
}  // namespace wideep::server
