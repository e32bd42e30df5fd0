// SPDX-License-Identifier: Apache-2.0
#include "store/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_bytes.h"
#include "store/host_tier.h"
#include "store/records_testing.h"

namespace wideep::store {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A map that can be broken, with a clock that only it moves.
class FakePlace : public Place {
 public:
  FakePlace(std::string label, double& now) : label_(std::move(label)), now_(now) {}

  std::string_view label() const override { return label_; }
  std::vector<bool> find(std::span<const Head> heads) override {
    ++calls;
    std::vector<bool> found(heads.size());
    if (!finds) ++counts_.failures;
    if (finds && found_per_search < heads.size()) ++counts_.slow_finds;
    const size_t looked_for = std::min(heads.size(), found_per_search);
    for (size_t i = 0; finds && i < looked_for; ++i) found[i] = records.contains(heads[i].name);
    return found;
  }
  Status fetch(std::span<const FetchOrder> orders,
               const std::function<bool(size_t, FetchResult)>& done) override {
    ++calls;
    now_ += latency;
    for (size_t i = 0; i < orders.size(); ++i) {
      ++read;
      if (i == fails_at) {
        ++counts_.failures;
        return failed("wires are cut");
      }
      const auto found = records.find(orders[i].head.name);
      FetchResult result = FetchResult::kMissing;
      if (found != records.end()) {
        now_ += seconds_per_byte * static_cast<double>(found->second.size());
        std::ranges::copy(found->second, orders[i].into.begin());
        const bool is_good = found->second == payload_of(orders[i].head);
        result = is_good ? FetchResult::kWhole : FetchResult::kDamaged;
      }
      if (!done(i, result)) break;
    }
    return {};
  }
  OfferResult offer(const Head& head, std::span<const std::byte> payload, double seconds,
                    const std::function<bool()>& is_intact) override {
    ++calls;
    if (records.contains(head.name)) return OfferResult::kKnown;
    if (!writes) return OfferResult::kFailed;
    if (!is_intact()) return OfferResult::kRefused;
    records[head.name].assign(payload.begin(), payload.end());
    last_seconds = seconds;
    return OfferResult::kTaken;
  }
  void forget(const Name& name, Kind) override { records.erase(name); }
  PlaceCounts counts() const override { return counts_; }
  PlaceSize size() override { return {}; }

  std::map<Name, std::vector<std::byte>> records;
  bool finds = true, writes = true;
  size_t fails_at = SIZE_MAX, found_per_search = SIZE_MAX;
  int calls = 0, read = 0;
  double latency = 0.0, seconds_per_byte = 0.0, last_seconds = 0.0;

 private:
  std::string label_;
  double& now_;
  PlaceCounts counts_;
};

struct Outcome {
  size_t index = 0;
  FetchResult result = FetchResult::kMissing;
  int place = 0;
  bool operator==(const Outcome&) const = default;
};

class PlacesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<ListedPlace> list;
    const char* const labels[] = {"near", "middle", "far"};
    for (int i = 0; i < 3; ++i) {
      auto place = std::make_unique<FakePlace>(labels[i], now_);
      fake_[i] = place.get();
      list.push_back({.place = std::move(place),
                      .expected = {.latency_seconds = 0.5, .seconds_per_byte = 1e-3},
                      .takes_hits = i == 0});
    }
    places_.emplace(std::move(list), [this] { return now_; });
  }

  // Whatever is whole has its bytes.
  std::vector<Outcome> fetch(std::span<const Head> heads, std::span<const int> where,
                             size_t max_results = SIZE_MAX) {
    std::vector<std::vector<std::byte>> bytes;
    for (const Head& each : heads) bytes.emplace_back(each.part.bytes());
    std::vector<Wanted> wanted;
    for (size_t i = 0; i < heads.size(); ++i) {
      wanted.push_back({.order = {.head = heads[i], .into = bytes[i]}, .place = where[i]});
    }
    std::vector<Outcome> outcomes;
    places_->fetch(wanted, [&](size_t index, FetchResult result, int place) {
      now_ += 100.0;  // the caller's own affair
      outcomes.push_back({index, result, place});
      if (result == FetchResult::kWhole) {
        EXPECT_EQ(bytes[index], payload_of(heads[index]));
      }
      return outcomes.size() < max_results;
    });
    return outcomes;
  }

  void put(int place, const Head& head) { fake_[place]->records[head.name] = payload_of(head); }

  double now_ = 1000.0;
  FakePlace* fake_[3] = {};
  std::optional<Places> places_;
  const std::vector<Head> pages_ = sequence_of(1, 5, 1000);
};

constexpr auto kWhole = FetchResult::kWhole;
constexpr auto kMissing = FetchResult::kMissing;
constexpr auto kDamaged = FetchResult::kDamaged;

TEST_F(PlacesTest, ARecordComesFromTheFirstPlaceThatHasIt) {
  put(0, pages_[0]), put(1, pages_[0]);
  put(1, pages_[1]), put(2, pages_[1]);
  put(2, pages_[2]);
  put(0, pages_[4]);
  const auto where = places_->find(pages_);
  EXPECT_THAT(where, ElementsAre(0, 1, 2, -1, 0));
  EXPECT_EQ(
      fetch(pages_, where),
      (std::vector<Outcome>{
          {0, kWhole, 0}, {4, kWhole, 0}, {1, kWhole, 1}, {2, kWhole, 2}, {3, kMissing, -1}}));
}

TEST_F(PlacesTest, AHitIsOfferedWhereHitsAreTaken) {
  put(2, pages_[0]);
  const std::vector<std::byte> bytes = payload_of(pages_[0]);
  places_->offer_hit(pages_[0], bytes, 0.75, [] { return false; });  // it has changed
  EXPECT_THAT(places_->find({&pages_[0], 1}), ElementsAre(2));
  places_->offer_hit(pages_[0], bytes, 0.75, kIntact);
  EXPECT_THAT(places_->find({&pages_[0], 1}), ElementsAre(0));
  EXPECT_EQ(fake_[0]->last_seconds, 0.75);
  EXPECT_FALSE(fake_[1]->records.contains(pages_[0].name));
}

TEST_F(PlacesTest, WhatIsGoneOrDamagedComesFromALaterPlace) {
  for (int i = 0; i < 3; ++i) put(0, pages_[i]);
  put(2, pages_[1]), put(2, pages_[0]);
  const auto where = places_->find(pages_);
  fake_[0]->records.erase(pages_[0].name);
  fake_[0]->records[pages_[1].name][500] ^= std::byte{1};
  fake_[0]->records[pages_[2].name][500] ^= std::byte{1};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(fetch(pages_, where), (std::vector<Outcome>{{2, kDamaged, -1},
                                                        {0, kWhole, 2},
                                                        {1, kWhole, 2},
                                                        {3, kMissing, -1},
                                                        {4, kMissing, -1}}));
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("near: a record is damaged (checksum), the last " + pages_[1].name.hex()),
            Not(HasSubstr(pages_[2].name.hex()))));
  EXPECT_FALSE(fake_[0]->records.contains(pages_[1].name));
  EXPECT_FALSE(fake_[0]->records.contains(pages_[2].name));
}

TEST_F(PlacesTest, NoMoreAreReadThanAreWanted) {
  for (int i = 0; i < 5; ++i) put(i < 3 ? 0 : 1, pages_[i]);
  EXPECT_EQ(fetch(pages_, places_->find(pages_), 2),
            (std::vector<Outcome>{{0, kWhole, 0}, {1, kWhole, 0}}));
  const int before = fake_[1]->calls;
  fetch(pages_, places_->find(pages_), 3);
  EXPECT_EQ(fake_[1]->calls, before + 1);  // find, no fetch
}

// Who needs all up to a page reads none behind one that is nowhere.
TEST_F(PlacesTest, WhatIsMissingEndsTheFetchAtOnce) {
  for (int i = 0; i < 5; ++i) put(i < 4 ? 0 : 1, pages_[i]);
  const auto where = places_->find(pages_);
  fake_[0]->records.erase(pages_[1].name);
  EXPECT_EQ(fetch(pages_, where, 2), (std::vector<Outcome>{{0, kWhole, 0}, {1, kMissing, -1}}));
  EXPECT_EQ(fake_[0]->read, 2);
  EXPECT_EQ(fake_[1]->read, 0);
  // A later place has it: the others are read meanwhile.
  put(2, pages_[1]);
  EXPECT_EQ(fetch(pages_, where),
            (std::vector<Outcome>{
                {0, kWhole, 0}, {2, kWhole, 0}, {3, kWhole, 0}, {4, kWhole, 1}, {1, kWhole, 2}}));
  // It is damaged there, and that was the last place; the nearest has taken it since.
  for (int i = 0; i < 2; ++i) fake_[i]->records.erase(pages_[1].name);
  fake_[2]->records[pages_[1].name][7] ^= std::byte{1};
  put(2, pages_[3]);
  fake_[2]->read = 0;
  EXPECT_EQ(
      fetch(pages_, std::vector{0, 2, 0, 2, 1}, 4),
      (std::vector<Outcome>{{0, kWhole, 0}, {2, kWhole, 0}, {4, kWhole, 1}, {1, kDamaged, -1}}));
  EXPECT_EQ(fake_[2]->read, 1);
}

TEST_F(PlacesTest, APlaceThatIsSlowNowAndThenGoesOnToBeAsked) {
  for (const Head& each : pages_) put(1, each);
  ::testing::internal::CaptureStderr();
  for (int turn = 0; turn < 5; ++turn) {
    fake_[1]->found_per_search = 2;
    for (int i = 0; i < Places::kMaxSlowFinds - 1; ++i) {
      EXPECT_THAT(places_->find(pages_), ElementsAre(1, 1, -1, -1, -1));
    }
    fake_[1]->found_per_search = SIZE_MAX;
    EXPECT_THAT(places_->find(pages_), ElementsAre(1, 1, 1, 1, 1));
  }
  EXPECT_FALSE(places_->is_out(1));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(PlacesTest, APlaceThatIsAlwaysSlowIsLeftAlone) {
  for (const Head& each : pages_) put(1, each);
  fake_[1]->found_per_search = 2;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < Places::kMaxSlowFinds; ++i) {
    EXPECT_FALSE(places_->is_out(1));
    EXPECT_THAT(places_->find(pages_), ElementsAre(1, 1, -1, -1, -1));
  }
  EXPECT_TRUE(places_->is_out(1));
  const int calls = fake_[1]->calls;
  EXPECT_THAT(places_->find(pages_), ElementsAre(-1, -1, -1, -1, -1));
  now_ += 1.0;  // still slow: once is enough now
  EXPECT_THAT(places_->find(pages_), ElementsAre(1, 1, -1, -1, -1));
  EXPECT_THAT(places_->find(pages_), ElementsAre(-1, -1, -1, -1, -1));
  EXPECT_EQ(fake_[1]->calls, calls + 1);
  fake_[1]->found_per_search = SIZE_MAX;
  now_ += 2.0;
  EXPECT_THAT(places_->find(pages_), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_FALSE(places_->is_out(1));
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines, HasSubstr("middle: 3 searches in a row took too long; prompts are computed"));
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2) << lines;
}

TEST_F(PlacesTest, APlaceThatFailsIsLeftAloneForAWhile) {
  for (const Head& each : pages_) put(1, each);
  put(2, pages_[1]);
  const auto where = places_->find(pages_);
  fake_[1]->fails_at = 1;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(fetch(pages_, where), (std::vector<Outcome>{{0, kWhole, 1},
                                                        {2, kMissing, -1},
                                                        {3, kMissing, -1},
                                                        {4, kMissing, -1},
                                                        {1, kWhole, 2}}));
  EXPECT_TRUE(places_->is_out(1));
  now_ = 5000.0;
  fake_[1]->fails_at = 0;
  fake_[0]->records.clear();
  // It finds, and yet cannot be read: it stays as it is, and waits longer each time.
  double waited = 0.0;
  int tries = 0;
  for (; waited < 300.0; waited += 0.25, now_ += 0.25) {
    const int calls = fake_[1]->calls;
    const auto found = places_->find(pages_);
    if (found[0] == 1) fetch({&pages_[0], 1}, std::vector{1}), now_ -= 100.0;
    tries += fake_[1]->calls > calls;
  }
  EXPECT_GE(tries, 8);  // after 2, 4, … 60 s
  EXPECT_LE(tries, 10);
  fake_[1]->fails_at = SIZE_MAX;
  now_ += 60.0;
  EXPECT_THAT(places_->find(pages_), ElementsAre(1, 1, 1, 1, 1));
  EXPECT_TRUE(places_->is_out(1));
  EXPECT_EQ(fetch({&pages_[0], 1}, std::vector{1}), (std::vector<Outcome>{{0, kWhole, 1}}));
  EXPECT_FALSE(places_->is_out(1));
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(lines,
              HasSubstr("middle: wires are cut; prompts are computed instead, next try in 1 s"));
  EXPECT_THAT(lines, HasSubstr("middle: works again after"));
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2);
}

TEST_F(PlacesTest, APlaceThatCannotBeSearchedIsNotWritten) {
  fake_[1]->finds = false;
  EXPECT_THAT(places_->find(pages_), ElementsAre(-1, -1, -1, -1, -1));
  const int calls = fake_[1]->calls;
  const auto bytes = payload_of(pages_[0]);
  EXPECT_THAT(places_->offer_to_all(pages_[0], bytes, 1.0, kIntact),
              ElementsAre(OfferResult::kTaken, OfferResult::kFailed, OfferResult::kTaken));
  EXPECT_EQ(fake_[1]->calls, calls);
  fake_[1]->finds = true;
  now_ += 1.0;
  EXPECT_THAT(places_->find(pages_), ElementsAre(0, -1, -1, -1, -1));
  EXPECT_FALSE(places_->is_out(1));
}

TEST_F(PlacesTest, APlaceThatCannotBeWrittenIsRead) {
  put(1, pages_[0]);
  fake_[1]->writes = false;
  const auto bytes = payload_of(pages_[1]);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(places_->offer(1, pages_[1], bytes, 1.0, kIntact), OfferResult::kFailed);
  const int calls = fake_[1]->calls;
  EXPECT_EQ(places_->offer(1, pages_[1], bytes, 1.0, kIntact), OfferResult::kFailed);
  EXPECT_EQ(fake_[1]->calls, calls);
  EXPECT_THAT(places_->find({&pages_[0], 1}), ElementsAre(1));
  EXPECT_TRUE(places_->is_out(1));
  fake_[1]->writes = true;
  now_ += 1.0;
  EXPECT_EQ(places_->offer(1, pages_[1], bytes, 1.0, kIntact), OfferResult::kTaken);
  EXPECT_FALSE(places_->is_out(1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("middle: it cannot be written; it keeps nothing new, next try in 1 s"));
}

// It knows what it has, and has no room for more: no line each time.
TEST_F(PlacesTest, AFullPlaceIsNotAskedForEveryPage) {
  put(1, pages_[0]);
  fake_[1]->writes = false;
  const auto bytes = payload_of(pages_[1]);
  ::testing::internal::CaptureStderr();
  int asked = 0;
  for (double waited = 0.0; waited < 120.0; waited += 0.125, now_ += 0.125) {
    const int calls = fake_[1]->calls;
    places_->offer(1, pages_[1], bytes, 1.0, kIntact);
    asked += fake_[1]->calls - calls;
    EXPECT_THAT(places_->find({&pages_[0], 1}), ElementsAre(1));
    places_->offer(1, pages_[0], bytes, 1.0, kIntact);  // known
  }
  EXPECT_LE(asked, 8);  // after 1, 2, 4, … 60 s
  EXPECT_EQ(fetch({&pages_[0], 1}, std::vector{1}), (std::vector<Outcome>{{0, kWhole, 1}}));
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(lines, '\n'), 1) << lines;
}

TEST_F(PlacesTest, OffersEndWhereThePayloadHasChanged) {
  int asked = 0;
  EXPECT_THAT(
      places_->offer_to_all(pages_[0], payload_of(pages_[0]), 1.0, [&] { return ++asked < 2; }),
      ElementsAre(OfferResult::kTaken, OfferResult::kRefused, OfferResult::kRefused));
  EXPECT_TRUE(fake_[2]->records.empty());
  EXPECT_EQ(asked, 2);
}

TEST_F(PlacesTest, PricesAreMeasured) {
  const std::vector<int> in_near(5, 0);
  EXPECT_DOUBLE_EQ(places_->predicted_seconds(pages_, in_near), 0.5 + 5000 * 1e-3);
  for (const Head& each : pages_) put(0, each), put(1, each);
  fake_[0]->latency = 0.125;
  fake_[0]->seconds_per_byte = 1e-4;
  fetch(pages_, in_near);
  EXPECT_NEAR(places_->predicted_seconds(pages_, in_near), 0.125 + 5000 * 1e-4, 1e-9);
  // Some here, some there, some nowhere.
  EXPECT_NEAR(places_->predicted_seconds(pages_, std::vector{0, 1, -1, 0, 1}),
              (0.125 + 2000 * 1e-4) + (0.5 + 2000 * 1e-3), 1e-9);
  // It becomes slower: the last fetches count most.
  fake_[0]->seconds_per_byte = 4e-3;
  for (int i = 0; i < 20; ++i) fetch(pages_, in_near);
  EXPECT_NEAR(places_->price(0).seconds_per_byte, 4e-3, 1e-5);
  EXPECT_NEAR(places_->price(0).latency_seconds, 0.125, 0.01);
  // Dearer than expected: that is forgotten, else nobody would try again.
  now_ += 3600.0;
  EXPECT_NEAR(places_->price(0).seconds_per_byte, 1e-3, 1e-6);
  EXPECT_NEAR(places_->price(0).latency_seconds, 0.125, 0.01);
}

TEST_F(PlacesTest, LatencyCountsOncePerFetch) {
  const auto pages = sequence_of(2, 500, 1000);
  const std::vector<int> where(500, 1);
  EXPECT_DOUBLE_EQ(places_->predicted_seconds(pages, where), 0.5 + 500 * 1000 * 1e-3);
  for (const Head& each : pages) put(1, each);
  fake_[1]->latency = 0.25;
  fake_[1]->seconds_per_byte = 1e-6;
  const double before = now_;
  fetch(pages, where);
  EXPECT_NEAR(places_->predicted_seconds(pages, where), 0.25 + 500 * 1000 * 1e-6, 1e-6);
  EXPECT_NEAR(now_ - before - 500 * 100.0, places_->predicted_seconds(pages, where), 1e-6);
}

// Of a suspended machine, say: time that has gone by counts as that, and nothing breaks.
TEST_F(PlacesTest, AClockThatJumpsOnlyEndsWaits) {
  put(1, pages_[0]);
  fake_[1]->finds = false;
  EXPECT_THAT(places_->find({&pages_[0], 1}), ElementsAre(-1));
  fake_[1]->finds = true;
  now_ += 1e9;
  EXPECT_THAT(places_->find({&pages_[0], 1}), ElementsAre(1));
  EXPECT_DOUBLE_EQ(places_->price(1).latency_seconds, 0.5);
  fake_[1]->latency = 1e9;  // within a fetch
  EXPECT_EQ(fetch({&pages_[0], 1}, std::vector{1}), (std::vector<Outcome>{{0, kWhole, 1}}));
  now_ += 3600.0;
  EXPECT_LT(places_->predicted_seconds({&pages_[0], 1}, std::vector{1}), 1e-3 * 1000 + 0.5 + 1e-6);
}

TEST_F(PlacesTest, OneRecordAloneIsMeasuredToo) {
  put(0, pages_[0]);
  fake_[0]->latency = 3.0;
  fake_[0]->seconds_per_byte = 1e-3;
  fetch({&pages_[0], 1}, std::vector{0});
  EXPECT_NEAR(places_->predicted_seconds({&pages_[0], 1}, std::vector{0}), 4.0, 1e-6);
  fake_[0]->latency = 0.0;
  fake_[0]->seconds_per_byte = 1e-5;
  for (int i = 0; i < 30; ++i) fetch({&pages_[0], 1}, std::vector{0});
  EXPECT_NEAR(places_->predicted_seconds({&pages_[0], 1}, std::vector{0}), 0.01, 1e-3);
}

// As a rank has them: what comes from afar is in the node's memory afterwards.
TEST(Places, AHostTierTakesHits) {
  const auto memory = HostTier::create_memory(16 * HostIndex::kBlockBytes).value();
  double now = 0.0;
  auto far = std::make_unique<FakePlace>("far", now);
  const auto pages = sequence_of(1, 3, 100'000);
  for (const Head& each : pages) far->records[each.name] = payload_of(each);
  std::vector<ListedPlace> list;
  list.push_back(
      {.place = HostTier::open(memory).value(), .expected = kHostPrice, .takes_hits = true});
  list.push_back({.place = std::move(far), .expected = kServerPrice});
  Places places(std::move(list));
  std::vector<std::vector<std::byte>> bytes(3, std::vector<std::byte>(100'000));
  for (const int expected : {1, 0}) {
    const auto where = places.find(pages);
    EXPECT_THAT(where, ElementsAre(expected, expected, expected));
    std::vector<Wanted> wanted;
    for (size_t i = 0; i < 3; ++i) {
      std::ranges::fill(bytes[i], std::byte{0});
      wanted.push_back({.order = {.head = pages[i], .into = bytes[i]}, .place = where[i]});
    }
    int whole = 0;
    places.fetch(wanted, [&](size_t, FetchResult result, int) {
      whole += result == kWhole;
      return true;
    });
    EXPECT_EQ(whole, 3);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(bytes[i], payload_of(pages[i]));
      places.offer_hit(pages[i], bytes[i], 1.0, kIntact);
    }
  }
  EXPECT_EQ(places.place(0).counts().fetched, 3u);
}

}  // namespace
}  // namespace wideep::store
