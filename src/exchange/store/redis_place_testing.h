// SPDX-License-Identifier: Apache-2.0
//
// For tests of RedisPlace: calls that compare every byte.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "store/records_testing.h"
#include "store/redis_place.h"
#include "store/redis_server_testing.h"
#include "transport/programs_testing.h"

namespace wideep::store {

inline std::unique_ptr<RedisPlace> place_at(const std::string& url) {
  auto options = parse_redis_url(url);
  EXPECT_TRUE(options.ok()) << options.status().message();
  return RedisPlace::make(*options).value();
}

// Page `number` of a sequence of its own, whole.
inline Head page_at(int sequence, uint32_t number, uint64_t bytes) {
  return sequence_of(sequence, number + 1, bytes).back();
}

inline OfferResult offer(RedisPlace& place, const Head& head) {
  return place.offer(head, payload_of(head), 1.0, kIntact);
}

struct Fetched {
  Status status;
  std::vector<FetchResult> results;  // [heads] that were reported
};

// Fetches, and compares every byte of what is there.
inline Fetched fetch(RedisPlace& place, const std::vector<Head>& heads,
                     size_t max_done = SIZE_MAX) {
  std::vector<std::vector<std::byte>> into;
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
    if (!transport::has_program("redis-server"))
      GTEST_SKIP() << "redis-server is missing (scripts/test_packages.txt)";
  }
};

}  // namespace wideep::store
