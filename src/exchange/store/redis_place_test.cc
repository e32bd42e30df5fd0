// SPDX-License-Identifier: Apache-2.0
//
// With a real redis-server; skipped where there is none.
#include "store/redis_place.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "store/places.h"
#include "store/redis_place_testing.h"
#include "store/redis_record.h"

namespace wideep::store {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(RedisPlaceTest, KeepsRecordsForOtherPlaces) {
  const RedisServerForTest server;
  const auto writer = place_at(server.url()), reader = place_at(server.url());
  std::vector<Head> heads;
  for (uint32_t i = 0; i < 20; ++i) heads.push_back(page_at(1, i, 1 + i * 40000));
  heads[7].kind = Kind::kState;
  for (size_t i = 0; i < heads.size(); ++i) {
    if (i != 3) {
      EXPECT_EQ(offer(*writer, heads[i]), OfferResult::kTaken) << i;
    }
  }
  EXPECT_EQ(offer(*reader, heads[5]), OfferResult::kKnown);

  std::vector<bool> expected(heads.size(), true);
  expected[3] = false;
  EXPECT_EQ(reader->find(heads), expected);
  Fetched fetched = fetch(*reader, heads);
  ASSERT_TRUE(fetched.status.ok()) << fetched.status.message();
  ASSERT_EQ(fetched.results.size(), heads.size());
  for (size_t i = 0; i < heads.size(); ++i) {
    EXPECT_EQ(fetched.results[i], i == 3 ? FetchResult::kMissing : FetchResult::kWhole) << i;
  }
  EXPECT_EQ(reader->counts().fetched, 19u);
  EXPECT_EQ(writer->counts().taken, 19u);
  EXPECT_EQ(writer->counts().taken_bytes, reader->counts().fetched_bytes);
  EXPECT_EQ(reader->size().records, 19u);
  EXPECT_GT(reader->size().bytes, writer->counts().taken_bytes);

  // The snapshot of states is another record than the page.
  Head page = heads[7];
  page.kind = Kind::kPage;
  EXPECT_THAT(reader->find({&page, 1}), ElementsAre(false));
  reader->forget(page.name, Kind::kPage);
  EXPECT_THAT(reader->find({&heads[7], 1}), ElementsAre(true));
  reader->forget(page.name, Kind::kState);
  EXPECT_THAT(reader->find({&heads[7], 1}), ElementsAre(false));
  EXPECT_EQ(reader->counts().failures + writer->counts().failures, 0u);
}

// Ranks of one layout write, a rank of another reads.
TEST_F(RedisPlaceTest, PutsPartsOfOtherLayoutsTogether) {
  const RedisServerForTest server;
  const auto place = place_at(server.url());
  constexpr uint64_t kLayers = 6, kHeads = 4, kHeadBytes = 96;
  Head head = page_at(2, 0, kLayers * kHeads * kHeadBytes);
  const auto part = [&](uint64_t layer, uint64_t layers, uint64_t first, uint64_t heads) {
    return Part{.first = (layer * kHeads + first) * kHeadBytes,
                .length = heads * kHeadBytes,
                .stride = kHeads * kHeadBytes,
                .count = layers};
  };
  Head half = head, wanted = head, all = head;
  wanted.part = part(1, 4, 1, 2);  // layers 1 to 4, heads 1 and 2
  half.part = part(0, 6, 0, 2);
  EXPECT_EQ(offer(*place, half), OfferResult::kTaken);
  EXPECT_THAT(place->find({&wanted, 1}), ElementsAre(false));
  EXPECT_THAT(fetch(*place, {wanted}).results, ElementsAre(FetchResult::kMissing));
  half.part = part(0, 3, 2, 2);
  EXPECT_EQ(offer(*place, half), OfferResult::kTaken);
  half.part = part(3, 3, 2, 2);
  EXPECT_EQ(offer(*place, half), OfferResult::kTaken);
  EXPECT_THAT(place->find(std::vector{wanted, all}), ElementsAre(true, true));
  EXPECT_THAT(fetch(*place, {wanted, all, half}).results,
              ElementsAre(FetchResult::kWhole, FetchResult::kWhole, FetchResult::kWhole));
  EXPECT_EQ(offer(*place, wanted), OfferResult::kKnown);
}

TEST_F(RedisPlaceTest, RecordsExpireUnlessTheyAreRead) {
  const RedisServerForTest server;
  auto options = parse_redis_url(server.url());
  options->ttl = std::chrono::seconds(2);
  const auto place = RedisPlace::make(*options).value();
  const Head read = page_at(3, 0, 100), unread = page_at(3, 1, 100);
  EXPECT_EQ(offer(*place, read), OfferResult::kTaken);
  EXPECT_EQ(offer(*place, unread), OfferResult::kTaken);
  std::this_thread::sleep_for(milliseconds(1200));
  EXPECT_THAT(fetch(*place, {read}).results, ElementsAre(FetchResult::kWhole));
  std::this_thread::sleep_for(milliseconds(1200));
  EXPECT_THAT(place->find(std::vector{read, unread}), ElementsAre(true, false));
  EXPECT_EQ(offer(*place, unread), OfferResult::kTaken);
}

TEST_F(RedisPlaceTest, NothingIsKeptOfAPageThatChangesMeanwhile) {
  const RedisServerForTest server;
  const auto place = place_at(server.url());
  const Head head = page_at(4, 0, 300000);
  EXPECT_EQ(place->offer(head, payload_of(head), 1.0, [] { return false; }), OfferResult::kRefused);
  EXPECT_THAT(place->find({&head, 1}), ElementsAre(false));
  EXPECT_EQ(server.say({"DBSIZE"}).integer, 0);
}

TEST_F(RedisPlaceTest, DamagedAndForeignRecordsAreNeverTaken) {
  const RedisServerForTest server;
  const auto place = place_at(server.url());
  const Head head = page_at(5, 0, 1000), after = page_at(5, 1, 1000);
  const std::string key = redis_key(head.name, head.kind), field = redis_field(head.part);
  EXPECT_EQ(offer(*place, head), OfferResult::kTaken);
  EXPECT_EQ(offer(*place, after), OfferResult::kTaken);
  const std::string value = server.say({"HGET", key, field}).text;
  ASSERT_EQ(value.size(), kRedisHeadBytes + 1000);

  std::string changed = value;
  changed[kRedisHeadBytes + 500] ^= 4;
  for (const std::string& damaged :
       {changed, value.substr(0, 900), value + "x", std::string(), std::string("text")}) {
    server.say({"HSET", key, field, damaged});
    const Fetched fetched = fetch(*place, {head, after});
    EXPECT_TRUE(fetched.status.ok()) << fetched.status.message();
    EXPECT_THAT(fetched.results, ElementsAre(FetchResult::kDamaged, FetchResult::kWhole));
  }
  EXPECT_EQ(place->counts().damaged, 5u);
  place->forget(head.name, head.kind);
  EXPECT_EQ(offer(*place, head), OfferResult::kTaken);
  EXPECT_THAT(fetch(*place, {head}).results, ElementsAre(FetchResult::kWhole));

  // The same name for other tokens, which no hash does: tokens decide.
  Head other = head;
  other.tokens[63] += 1;
  EXPECT_THAT(fetch(*place, {other}).results, ElementsAre(FetchResult::kMissing));
  // Fields and keys of others.
  server.say({"HSET", key, "note", "x"});
  server.say({"HSET", key, "0:18446744073709551615:2:3", "x"});
  EXPECT_THAT(fetch(*place, {head}).results, ElementsAre(FetchResult::kWhole));
  EXPECT_EQ(place->counts().foreign, 2u);
  server.say({"DEL", key});
  server.say({"SET", key, "x"});
  EXPECT_THAT(place->find(std::vector{head, after}), ElementsAre(false, true));
  EXPECT_EQ(offer(*place, head), OfferResult::kRefused);
  EXPECT_EQ(place->counts().failures, 0u);
}

// Whoever may write there does not get this side's time: fields beyond those of any layout.
TEST_F(RedisPlaceTest, OfManyFieldsFewAreTaken) {
  const RedisServerForTest server;
  const auto place = place_at(server.url());
  const Head head = page_at(7, 0, 4000);
  Head first = head, other = head;
  first.part = {.first = 0, .length = 2, .stride = 4000, .count = 1};
  other.part = {.first = 3000, .length = 1000, .stride = 4000, .count = 1};
  EXPECT_EQ(offer(*place, head), OfferResult::kTaken);
  const std::string key = redis_key(head.name, head.kind);
  server.say({"EVAL", "for i = 0, 1999 do redis.call('HSET', KEYS[1], i .. ':1:4000:1', 'x') end",
              "1", key});
  EXPECT_EQ(server.say({"HLEN", key}).integer, 2001);
  EXPECT_THAT(place->find({&head, 1}), ElementsAre(true));
  EXPECT_GE(place->counts().foreign, 2001 - kMaxRedisParts - 1);
  EXPECT_THAT(fetch(*place, {head}).results, ElementsAre(FetchResult::kWhole));
  // Put together of other fields: not of so many. And nobody adds to them.
  server.say({"HDEL", key, redis_field(head.part)});
  EXPECT_THAT(place->find({&other, 1}), ElementsAre(false));
  EXPECT_EQ(offer(*place, other), OfferResult::kRefused);
  EXPECT_EQ(server.say({"HLEN", key}).integer, 2000);
  EXPECT_EQ(place->counts().failures, 0u) << place->trouble();
}

// That it has no room for more says nothing against what it has.
TEST_F(RedisPlaceTest, AFullServerIsRead) {
  const RedisServerForTest server({"--maxmemory", "8mb", "--maxmemory-policy", "noeviction"});
  std::vector<ListedPlace> list;
  list.push_back({.place = place_at(server.url()), .expected = kServerPrice});
  Places places(std::move(list));
  auto& place = dynamic_cast<RedisPlace&>(places.place(0));
  const std::vector<Head> heads = sequence_of(8, 40, 500000);
  testing::internal::CaptureStderr();
  uint64_t taken = 0;
  for (const Head& head : heads) {
    taken += places.offer(0, head, payload_of(head), 1.0, kIntact) == OfferResult::kTaken;
  }
  EXPECT_GT(taken, 2u);
  EXPECT_LT(taken, 20u);
  EXPECT_EQ(place.counts().failures, 1u);  // asked once, not for each page
  EXPECT_TRUE(places.is_out(0));
  const std::vector<int> where = places.find(heads);
  EXPECT_EQ(std::count(where.begin(), where.end(), 0), static_cast<ptrdiff_t>(taken));
  EXPECT_THAT(fetch(place, {heads[0]}).results, ElementsAre(FetchResult::kWhole));
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("OOM"));
  EXPECT_THAT(lines, HasSubstr("it keeps nothing new"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
}

TEST_F(RedisPlaceTest, AServerIsKilledAndComesBack) {
  RedisServerForTest server;
  const auto place = place_at(server.url());
  const Head head = page_at(6, 0, 100000);
  EXPECT_EQ(offer(*place, head), OfferResult::kTaken);
  EXPECT_TRUE(place->check().ok());
  server.kill();
  EXPECT_EQ(place->check().code(), StatusCode::kFailed);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_THAT(place->find({&head, 1}), ElementsAre(false));
  const Fetched fetched = fetch(*place, {head});
  EXPECT_EQ(fetched.status.code(), StatusCode::kFailed);
  EXPECT_THAT(fetched.status.message(), HasSubstr(std::to_string(server.port())));
  EXPECT_THAT(fetched.results, ElementsAre());
  EXPECT_EQ(offer(*place, head), OfferResult::kFailed);
  EXPECT_EQ(place->counts().failures, 3u);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(3));
  server.start();
  EXPECT_THAT(place->find({&head, 1}), ElementsAre(false));  // it keeps nothing on disk
  EXPECT_EQ(offer(*place, head), OfferResult::kTaken);
  server.kill();
  server.start();  // the connection has ended while nobody looked
  EXPECT_EQ(offer(*place, head), OfferResult::kTaken);
  EXPECT_THAT(fetch(*place, {head}).results, ElementsAre(FetchResult::kWhole));
  EXPECT_EQ(place->counts().failures, 3u);
}

}  // namespace
}  // namespace wideep::store
