// SPDX-License-Identifier: Apache-2.0
#include "server/router_pages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace wideep::server {
namespace {

using testing::HasSubstr;

constexpr const char* kSnapshot =
    R"({"sequence": 7, "block_size": 64, "ranks": [
        {"data_parallel_rank": 0, "blocks": [{"hash": 1, "parent": null}, {"hash": 2, "parent": 1}]},
        {"data_parallel_rank": 1, "blocks": [{"hash": 18446744073709551615, "parent": null}]}]})";

PageNames of_prompt(std::vector<uint64_t> pages) {
  return {.num_tokens = pages.size() * 64 + 10, .prompts = {std::move(pages)}};
}

TEST(RouterPages, ASnapshotAndWhatChangesAfterIt) {
  ReplicaPages pages;
  EXPECT_FALSE(pages.is_known());
  const auto position = pages.take_snapshot(kSnapshot);
  ASSERT_TRUE(position.ok()) << position.status().message();
  EXPECT_EQ(position->sequence, 7u);
  EXPECT_EQ(pages.size(), 3u);
  EXPECT_EQ(pages.tokens_known(of_prompt({1, 2, 3})), 128u);
  EXPECT_EQ(pages.tokens_known(of_prompt({UINT64_MAX})), 64u);
  EXPECT_EQ(pages.tokens_known(of_prompt({2, 1})), 128u);
  EXPECT_EQ(pages.tokens_known(of_prompt({9, 1})), 0u);
  // Of one rank: a request is computed by one.
  EXPECT_EQ(pages.tokens_known(of_prompt({1, UINT64_MAX})), 64u);

  const auto next = pages.take_events(R"({"sequence": 9, "batches": [
      {"sequence": 7, "data_parallel_rank": 0, "events": [{"type": "AllBlocksCleared"}]},
      {"sequence": 8, "data_parallel_rank": 0, "events": [
        {"type": "BlockStored", "block_hashes": [3, 4], "parent_block_hash": 2, "token_ids": []},
        {"type": "Unknown"}, {"type": "BlockRemoved", "block_hashes": [1, 77]}]},
      {"sequence": 9, "data_parallel_rank": 1, "events": [{"type": "AllBlocksCleared"}]}]})",
                                      *position);
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_EQ(next->sequence, 9u);
  EXPECT_EQ(pages.size(), 3u);
  EXPECT_EQ(pages.tokens_known(of_prompt({2, 3, 4})), 192u);
  EXPECT_EQ(pages.tokens_known(of_prompt({1, 2})), 0u);
  pages.clear();
  EXPECT_FALSE(pages.is_known());
  EXPECT_EQ(pages.size(), 0u);
}

TEST(RouterPages, WhatDoesNotFollowOrIsWrongLeavesNothingKnown) {
  const std::pair<const char*, const char*> bad[] = {
      {R"({"sequence": 6, "batches": []})", "do not follow"},
      {R"({"sequence": -1, "batches": []})", "sequence: expected a whole number"},
      {R"({"sequence": 9})", "batches: expected a list, found null"},
      {R"({"sequence": 9, "batches": [{"sequence": 8, "data_parallel_rank": "0", "events": []}]})",
       "data_parallel_rank: expected a whole number, found '0'"},
      {R"({"sequence": 9, "batches": [{"sequence": 8, "data_parallel_rank": 0}]})",
       "events: expected a list"},
      {R"({"sequence": 9, "batches": [{"sequence": 8, "data_parallel_rank": 0,
           "events": [{"type": "BlockStored", "block_hashes": [-1]}]}]})",
       "block_hashes: expected whole numbers"},
      {"[", "/v1/kv_events:1:"},
      {"[]", "sequence: expected"},
  };
  for (const auto& [text, message] : bad) {
    ReplicaPages pages;
    const auto position = pages.take_snapshot(kSnapshot);
    ASSERT_TRUE(position.ok());
    const auto refused = pages.take_events(text, *position);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_THAT(refused.status().message(), HasSubstr(message));
    EXPECT_FALSE(pages.is_known());
    EXPECT_EQ(pages.size(), 0u);
    EXPECT_FALSE(pages.take_events(R"({"sequence": 9, "batches": []})", *position).ok());
  }
  for (const char* text :
       {"", "{}", R"({"sequence": 1, "block_size": 99999999, "ranks": []})",
        R"({"sequence": 1, "block_size": 64, "ranks": [{"data_parallel_rank": 0}]})",
        R"({"sequence": 1, "block_size": 64, "ranks": [{"data_parallel_rank": 0,
                               "blocks": [{"hash": 1}, {"hash": "x"}]}]})"}) {
    ReplicaPages pages;
    EXPECT_FALSE(pages.take_snapshot(text).ok()) << text;
    EXPECT_EQ(pages.size(), 0u);
  }
}

TEST(RouterPages, ThereAreNoMoreThanBounded) {
  std::string hashes = "0";
  for (size_t i = 1; i <= ReplicaPages::kMaxPages; ++i) hashes += fmt::format(",{}", i);
  ReplicaPages pages;
  const auto position = pages.take_snapshot(kSnapshot);
  const auto refused = pages.take_events(
      R"({"sequence": 8, "batches": [{"sequence": 8, "data_parallel_rank": 0, "events": [
          {"type": "BlockStored", "block_hashes": [)" +
          hashes + "]}]}]}",
      *position);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("expected 1048576 pages at most"));
  EXPECT_EQ(pages.size(), 0u);
}

TEST(RouterPages, RandomEventsLeaveWhatAPlainSetHas) {
  ReplicaPages pages;
  auto position = pages.take_snapshot(R"({"sequence": 0, "block_size": 1, "ranks": []})");
  ASSERT_TRUE(position.ok());
  std::set<uint64_t> plain[2];
  std::mt19937 random(5);
  for (uint64_t i = 1; i < 5'000; ++i) {
    const size_t rank = random() % 2;
    const uint64_t hash = random() % 50;
    const auto kind = random() % 100;
    std::string event = R"({"type": "AllBlocksCleared"})";
    if (kind == 0) {
      plain[rank].clear();
    } else {
      kind < 60 ? void(plain[rank].insert(hash)) : void(plain[rank].erase(hash));
      event = fmt::format(R"({{"type": "{}", "block_hashes": [{}]}})",
                          kind < 60 ? "BlockStored" : "BlockRemoved", hash);
    }
    position = pages.take_events(
        fmt::format(
            R"({{"sequence": {0}, "batches": [{{"sequence": {0}, "data_parallel_rank": {1},)"
            R"("events": [{2}]}}]}})",
            i, rank, event),
        *position);
    ASSERT_TRUE(position.ok());
    ASSERT_EQ(pages.size(), plain[0].size() + plain[1].size());
    const bool is_there = plain[0].contains(hash) || plain[1].contains(hash);
    ASSERT_EQ(pages.tokens_known(of_prompt({hash})), is_there ? 1u : 0u);
  }
}

TEST(RouterPages, NamesOfAPromptsPagesAreRead) {
  const auto names = read_page_names(
      R"({"prompts": [[1, 2, 3], [4]], "cache_salt": "", "page_hashes": [[18446744073709551615], []]})");
  ASSERT_TRUE(names.ok()) << names.status().message();
  EXPECT_EQ(names->num_tokens, 4u);
  EXPECT_EQ(names->prompts, (std::vector<std::vector<uint64_t>>{{UINT64_MAX}, {}}));
  for (const char* text :
       {"", "{}", R"({"prompts": [[1]]})", R"({"prompts": [[1]], "page_hashes": []})",
        R"({"prompts": [1], "page_hashes": [[1]]})",
        R"({"prompts": [[1]], "page_hashes": [["1"]]})", R"({"prompts": 1, "page_hashes": 1})"}) {
    EXPECT_FALSE(read_page_names(text).ok()) << text;
  }
}

}  // namespace
}  // namespace wideep::server
