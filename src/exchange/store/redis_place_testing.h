// SPDX-License-Identifier: Apache-2.0
//
// For tests of RedisPlace: records whose bytes follow from their names, and calls that compare
// every byte.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "store/redis_place.h"
#include "store/redis_server_testing.h"

namespace wideep::store {

using Bytes = std::vector<std::byte>;

inline bool is_intact() { return true; }

inline std::unique_ptr<RedisPlace> place_at(const std::string& url) {
  auto options = parse_redis_url(url);
  EXPECT_TRUE(options.ok()) << options.status().message();
  return RedisPlace::make(*options).value();
}

// Page `number` of the sequence `seed`, of `bytes` bytes, whole.
inline Head head_of(int seed, uint32_t number, uint64_t bytes) {
  Head head;
  head.before = root_name("class", std::to_string(seed * 1000 + static_cast<int>(number)));
  std::iota(head.tokens.begin(), head.tokens.end(), seed * 100000 + static_cast<int>(number));
  head.name = page_name(head.before, 0, head.tokens);
  head.page = number;
  head.canonical_bytes = bytes;
  head.part = Part::whole(bytes);
  return head;
}

// What the canonical form of a record has in a part: every byte follows from name and place.
inline Bytes payload_of(const Head& head) {
  Bytes bytes;
  bytes.reserve(head.part.bytes());
  const unsigned salt = head.name.bytes[3];
  for (uint64_t i = 0; i < head.part.count; ++i) {
    for (uint64_t at = 0; at < head.part.length; ++at) {
      const uint64_t where = head.part.first + i * head.part.stride + at;
      bytes.push_back(static_cast<std::byte>((where * 131 + where / 251 + salt) & 0xff));
    }
  }
  return bytes;
}

inline OfferResult offer(RedisPlace& place, const Head& head) {
  return place.offer(head, payload_of(head), 1.0, is_intact);
}

struct Fetched {
  Status status;
  std::vector<FetchResult> results;  // [heads] that were reported
};

// Fetches, and compares every byte of what is there.
inline Fetched fetch(RedisPlace& place, const std::vector<Head>& heads,
                     size_t max_done = SIZE_MAX) {
  std::vector<Bytes> into;
  for (const Head& head : heads) into.emplace_back(head.part.bytes());
  std::vector<FetchOrder> orders;
  for (size_t i = 0; i < heads.size(); ++i) orders.push_back({heads[i], into[i]});
  Fetched fetched;
  fetched.status = place.fetch(orders, [&](size_t index, FetchResult result) {
    EXPECT_EQ(index, fetched.results.size());
    if (result == FetchResult::kWhole) {
      EXPECT_TRUE(into[index] == payload_of(heads[index]));
    }
    fetched.results.push_back(result);
    return fetched.results.size() < max_done;
  });
  return fetched;
}

class RedisPlaceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_redis_server()) GTEST_SKIP() << "redis-server is missing (scripts/test_packages.txt)";
  }
};

}  // namespace wideep::store
