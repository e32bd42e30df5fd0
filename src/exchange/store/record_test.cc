// SPDX-License-Identifier: Apache-2.0
#include "store/record.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace wideep::store {
namespace {

std::array<int32_t, kPageTokens> tokens_from(int32_t first) {
  std::array<int32_t, kPageTokens> tokens;
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(Name, FollowsFromClassSaltFormAndAllTokens) {
  std::set<Name> names;
  int count = 0;
  for (const auto& [model, salt] :
       {std::pair("ab", ""), std::pair("a", "b"), std::pair("", "ab"), std::pair("ab", "c")}) {
    const Name root = root_name(model, salt);
    names.insert(root);
    ++count;
    for (const int32_t form : {0, 64}) {
      for (const int32_t first : {0, 1}) {
        const Name page = page_name(root, form, tokens_from(first));
        names.insert(page);
        names.insert(page_name(page, form, tokens_from(first)));
        count += 2;
      }
    }
  }
  EXPECT_EQ(static_cast<int>(names.size()), count);
  EXPECT_EQ(root_name("ab", ""), root_name("ab", ""));
  EXPECT_EQ(root_name("a model", "").hex().size(), 32u);
}

// Written down: records in files outlive this program.
TEST(Name, IsTheSameInEveryVersion) {
  const Name page = page_name(root_name("class", "salt"), 7, tokens_from(100));
  EXPECT_EQ(page.hex(), "b872b0d4ffec8ed70bb1c7358ec8a303");
}

TEST(PageWalk, GoesThroughTheWholePages) {
  std::vector<int32_t> tokens(3 * kPageTokens - 1);
  std::iota(tokens.begin(), tokens.end(), 5);
  PageWalk walk("class", "salt", tokens);
  Name before = root_name("class", "salt");
  for (uint32_t page = 0; page < 2; ++page) {
    const std::optional<Head> head = walk.next();
    ASSERT_TRUE(head);
    EXPECT_EQ(head->page, page);
    EXPECT_EQ(head->before, before);
    EXPECT_EQ(head->tokens, tokens_from(5 + static_cast<int32_t>(page * kPageTokens)));
    EXPECT_EQ(head->name, page_name(before, 0, head->tokens));
    before = head->name;
  }
  EXPECT_FALSE(walk.next());
  EXPECT_FALSE(walk.next());
}

TEST(PageWalk, ThePageOfTheLastTokenIsNotReusable) {
  for (const auto& [tokens, pages] : {std::pair<size_t, int>{0, 0},
                                      {1, 0},
                                      {kPageTokens, 0},
                                      {kPageTokens + 1, 1},
                                      {2 * kPageTokens, 1},
                                      {2 * kPageTokens + 1, 2}}) {
    const std::vector<int32_t> prompt(tokens);
    PageWalk walk("class", "", reusable(prompt));
    int count = 0;
    while (walk.next()) ++count;
    EXPECT_EQ(count, pages) << tokens << " tokens";
  }
}

// Every byte of the canonical form has a value of its own.
std::vector<std::byte> payload_of(const Part& part) {
  std::vector<std::byte> bytes;
  for (uint64_t i = 0; i < part.count; ++i) {
    for (uint64_t at = 0; at < part.length; ++at) {
      bytes.push_back(static_cast<std::byte>((part.first + i * part.stride + at) * 7 % 251));
    }
  }
  return bytes;
}

// As ranks divide it: layers × heads.
Part random_part(std::mt19937& random, uint64_t layers, uint64_t heads, uint64_t head_bytes) {
  const auto pick = [&](uint64_t from, uint64_t to) {
    return std::uniform_int_distribution<uint64_t>(from, to)(random);
  };
  const uint64_t first_layer = pick(0, layers - 1), last_layer = pick(first_layer + 1, layers);
  const uint64_t first_head = pick(0, heads - 1), last_head = pick(first_head + 1, heads);
  return {.first = (first_layer * heads + first_head) * head_bytes,
          .length = (last_head - first_head) * head_bytes,
          .stride = heads * head_bytes,
          .count = last_layer - first_layer};
}

TEST(Part, OverlapsAreCopiedToTheirPlaces) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t layers = 1 + random() % 6, heads = 1 + random() % 5, bytes = 1 + random() % 9;
    const Part from = random_part(random, layers, heads, bytes);
    const Part to = random_part(random, layers, heads, bytes);
    const std::vector<std::byte> wanted = payload_of(to);
    std::vector<std::byte> got(wanted.size(), std::byte{255});
    const std::vector<std::byte> source = payload_of(from);
    const uint64_t copied = copy_overlap(from, source, to, got);
    uint64_t changed = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] == std::byte{255}) continue;
      EXPECT_EQ(got[i], wanted[i]);
      ++changed;
    }
    EXPECT_EQ(changed, copied);
    // Whole parts cover everything.
    const Part all = Part::whole(layers * heads * bytes);
    EXPECT_EQ(copy_overlap(all, payload_of(all), to, got), to.bytes());
    EXPECT_EQ(got, wanted);
  }
}

}  // namespace
}  // namespace wideep::store
