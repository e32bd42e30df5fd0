// SPDX-License-Identifier: Apache-2.0
//
// Random steps are held against a plain list with the same limits; memory against what answers
// still hold after their responses have made room: they must neither fill it nor push out others in
// vain. A response of another process is there for as long as its request, and for no client.
#include "api/response_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace wideep::server {
namespace {

using testing::HasSubstr;

StoredResponse of_bytes(size_t bytes) {
  return {.response = std::string(bytes / 2, 'r'),
          .conversation = std::string(bytes - bytes / 2, 'c')};
}

TEST(ResponseStoreTest, TheOldestMakeRoom) {
  ResponseStore store({.count = 2, .bytes = 100});
  store.add("a", of_bytes(10));
  store.add("b", of_bytes(20));
  store.add("c", of_bytes(30));
  EXPECT_EQ(store.find("a"), nullptr);
  ASSERT_NE(store.find("b"), nullptr);
  EXPECT_EQ(store.find("b")->bytes(), 20u);
  EXPECT_EQ(store.bytes(), 50u);
  store.add("d", of_bytes(90));
  EXPECT_EQ(store.size(), 1u);
  EXPECT_THAT(store.metrics(), HasSubstr("wideep_stored_responses_evicted_total 3\n"));
  EXPECT_THAT(store.metrics(), HasSubstr("wideep_stored_response_bytes 90\n"));
}

TEST(ResponseStoreTest, WhatIsLargerThanAllIsNotKept) {
  ResponseStore store({.count = 2, .bytes = 100});
  store.add("a", of_bytes(10));
  store.add("b", of_bytes(101));
  EXPECT_EQ(store.find("b"), nullptr);
  EXPECT_NE(store.find("a"), nullptr);
  EXPECT_TRUE(store.may_keep(100));
  EXPECT_FALSE(store.may_keep(101));
  EXPECT_FALSE(ResponseStore({.count = 0}).may_keep(1));
}

TEST(ResponseStoreTest, AReaderKeepsWhatIsErased) {
  ResponseStore store({});
  store.add("a", of_bytes(10));
  const auto kept = store.find("a");
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.erase("a"));
  EXPECT_EQ(kept->bytes(), 10u);
  EXPECT_EQ(store.bytes(), 0u);
}

// Answers that go on from stored ones must not fill the memory, however many were stored meanwhile.
TEST(ResponseStoreTest, WhatIsHeldCounts) {
  ResponseStore store({.count = 10, .bytes = 100});
  std::vector<std::shared_ptr<const StoredResponse>> held;
  for (int i = 0; i < 20; ++i) {
    const std::string id = std::to_string(i);
    store.add(id, of_bytes(60));
    if (auto found = store.find(id)) held.push_back(std::move(found));
    EXPECT_LE(store.held_bytes(), 200u);
  }
  EXPECT_EQ(held.size(), 3u);
  EXPECT_EQ(store.size(), 0u);
  held.pop_back();
  store.add("next", of_bytes(60));  // the newest of an answer that holds the one before
  EXPECT_NE(store.find("next"), nullptr);
  held.clear();
  EXPECT_EQ(store.held_bytes(), 60u);
}

// To drop what running answers hold frees nothing: others are not dropped for it.
TEST(ResponseStoreTest, WhatIsHeldTakesNoEntriesWithIt) {
  ResponseStore store({.count = 10, .bytes = 100});
  std::vector<std::shared_ptr<const StoredResponse>> held;
  for (const char* id : {"a", "b", "c", "d"}) {
    store.add(id, of_bytes(20));
    held.push_back(store.find(id));
  }
  store.add("e", of_bytes(30));
  EXPECT_EQ(store.find("a"), nullptr);
  for (const char* id : {"b", "c", "d", "e"}) EXPECT_NE(store.find(id), nullptr) << id;
}

// For as long as it goes on with the request, and for that request alone: it may have been erased.
TEST(ResponseStoreTest, AnotherProcessIsLentOne) {
  ResponseStore store({}), other({});
  store.add("a", {.response = "{}", .conversation = "[1]"});
  EXPECT_EQ(ResponseStore::record_of("b", store.previous("b").get()), "");
  EXPECT_EQ(other.lend(ResponseStore::record_of("b", store.previous("b").get())), nullptr);
  auto lent = other.lend(ResponseStore::record_of("a", store.previous("a").get())),
       again = other.lend(ResponseStore::record_of("a", store.previous("a").get()));
  for (auto* each : {&lent, &again}) {
    ASSERT_NE(other.previous("a"), nullptr);
    EXPECT_EQ(other.previous("a")->response, "{}");
    EXPECT_EQ(other.previous("a")->conversation, "[1]");
    EXPECT_EQ(ResponseStore::record_of("a", other.previous("a").get()),
              ResponseStore::record_of(
                  "a", store.previous("a").get()));  // for the process after this one
    EXPECT_EQ(other.find("a"), nullptr);
    EXPECT_FALSE(other.erase("a"));
    EXPECT_EQ(other.size(), 0u);
    each->reset();
  }
  EXPECT_EQ(other.previous("a"), nullptr);
}

// Held against a plain list.
TEST(ResponseStoreTest, KeepsItsLimitsInAnyOrder) {
  std::mt19937 random(7);
  ResponseStore store({.count = 5, .bytes = 200});
  std::vector<std::pair<std::string, size_t>> expected;
  const auto total = [&] {
    size_t sum = 0;
    for (const auto& each : expected) sum += each.second;
    return sum;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string id = std::to_string(random() % 12);
    const bool is_known =
        std::erase_if(expected, [&](const auto& each) { return each.first == id; }) > 0;
    if (random() % 3 == 0) {
      EXPECT_EQ(store.erase(id), is_known);
    } else {
      const size_t bytes = random() % 90;
      store.add(id, of_bytes(bytes));
      expected.emplace_back(id, bytes);
      while (expected.size() > 5 || total() > 200) expected.erase(expected.begin());
    }
    ASSERT_EQ(store.size(), expected.size()) << i;
    ASSERT_EQ(store.bytes(), total()) << i;
    for (const auto& each : expected) ASSERT_NE(store.find(each.first), nullptr) << i;
  }
}

}  // namespace
}  // namespace wideep::server
