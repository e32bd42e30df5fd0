// SPDX-License-Identifier: Apache-2.0
#include "server/router_prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>

namespace wideep::server {
namespace {

constexpr uint32_t kEver = UINT32_MAX;

std::vector<uint64_t> names(uint64_t first, size_t count) {
  std::vector<uint64_t> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = first + i;
  return all;
}

TEST(RouterPrefixIndex, FindsTheLongestBeginningOfEachReplica) {
  PrefixIndex index(3, 100);
  const auto chain = names(1, 10);
  index.add(0, std::span(chain).first(4), 0);
  index.add(1, chain, 0);
  EXPECT_EQ(index.match(0, chain, 0, kEver), 4u);
  EXPECT_EQ(index.match(1, chain, 0, kEver), 10u);
  EXPECT_EQ(index.match(2, chain, 0, kEver), 0u);
  EXPECT_EQ(index.match(1, {}, 0, kEver), 0u);
  EXPECT_EQ(index.size(), 14u);
}

TEST(RouterPrefixIndex, TimeEndsWhatIsKnown) {
  PrefixIndex index(1, 100);
  const auto chain = names(1, 10);
  index.add(0, chain, 100);
  index.add(0, std::span(chain).first(3), 500);
  EXPECT_EQ(index.match(0, chain, 700, 600), 10u);
  EXPECT_EQ(index.match(0, chain, 701, 600), 3u);
  EXPECT_EQ(index.match(0, chain, 1101, 600), 0u);
}

TEST(RouterPrefixIndex, ForgettingAReplicaLeavesTheOthers) {
  PrefixIndex index(2, 100);
  const auto chain = names(1, 10);
  index.add(0, chain, 0);
  index.add(1, chain, 0);
  index.forget(0);
  EXPECT_EQ(index.match(0, chain, 0, kEver), 0u);
  EXPECT_EQ(index.match(1, chain, 0, kEver), 10u);
  index.add(0, std::span(chain).first(2), 0);
  EXPECT_EQ(index.match(0, chain, 0, kEver), 2u);
}

TEST(RouterPrefixIndex, HasNoMoreEntriesThanItMay) {
  PrefixIndex index(2, 100);
  index.add(0, names(1, 1000), 0);
  EXPECT_EQ(index.size(), 100u);
  EXPECT_EQ(index.match(0, names(1, 1000), 0, kEver), 100u);
  // The end of what was used longest ago goes first.
  index.add(1, names(5000, 30), 1);
  EXPECT_EQ(index.size(), 100u);
  EXPECT_EQ(index.match(1, names(5000, 30), 1, kEver), 30u);
  EXPECT_EQ(index.match(0, names(1, 1000), 1, kEver), 70u);
}

// Against a list and a map.
TEST(RouterPrefixIndex, IsWhatAPlainOneIs) {
  constexpr size_t kMax = 64;
  PrefixIndex index(3, kMax);
  using Key = std::pair<size_t, uint64_t>;
  std::list<Key> order;  // the newest first
  std::map<Key, uint32_t> times;
  std::mt19937 random(7);
  for (uint32_t now = 0; now < 20'000; ++now) {
    const size_t replica = random() % 3;
    const auto chain = names(1 + random() % 12 * 1000, random() % 20);
    if (random() % 2 == 0) {
      index.add(replica, chain, now);
      for (size_t i = chain.size(); i-- > 0;) {
        const Key key(replica, chain[i]);
        order.remove(key);
        order.push_front(key);
        times[key] = now;
        if (order.size() <= kMax) continue;
        times.erase(order.back());
        order.pop_back();
      }
    }
    size_t known = 0;
    const auto is_there = [&](uint64_t name) {
      const auto found = times.find(Key(replica, name));
      return found != times.end() && now - found->second <= 30;
    };
    while (known < chain.size() && is_there(chain[known])) ++known;
    ASSERT_EQ(index.match(replica, chain, now, 30), known) << now;
    ASSERT_EQ(index.size(), times.size());
  }
}

}  // namespace
}  // namespace wideep::server
