// SPDX-License-Identifier: Apache-2.0
//
// Sums over ranks that are started again, and over serving processes that follow each other.
#include "server/place_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace wideep::server {
namespace {

using testing::HasSubstr;

run::StoreState::Tier tier(std::string_view label, uint64_t fetched, uint64_t bytes = 0) {
  run::StoreState::Tier tier;
  std::ranges::copy(label, tier.label.begin());
  tier.counts = {.fetched = fetched,
                 .fetched_bytes = 10 * fetched,
                 .damaged = fetched / 4,
                 .fetch_seconds = 0.5 * static_cast<double>(fetched)};
  tier.size = {.records = bytes / 10, .bytes = bytes, .max_bytes = 1000};
  return tier;
}

TEST(PlaceStates, RanksAreSummedAndTheirPlaceIsNot) {
  PlaceStates places({"host", "disk"});
  places.take({.rank = 0, .not_offered = 2, .tiers = {tier("host", 3, 100), tier("disk", 4, 200)}});
  places.take({.rank = 1, .not_offered = 1, .tiers = {tier("host", 5, 120), tier("disk", 8, 220)}});
  places.take({.rank = 0, .not_offered = 4, .tiers = {tier("host", 4, 110), tier("disk", 4, 210)}});
  const std::string text = places.metrics();
  for (const char* line : {
           "wideep_prompt_cache_hits_total{tier=\"host\"} 9",
           "wideep_prompt_cache_hits_total{tier=\"disk\"} 12",
           "wideep_prompt_cache_tokens_total{tier=\"disk\"} 768",
           "wideep_prompt_cache_bytes_total{tier=\"disk\"} 120",
           "wideep_prompt_cache_damaged_total{tier=\"disk\"} 3",
           "wideep_prompt_cache_fetch_seconds_total{tier=\"host\"} 4.5",
           "wideep_prompt_cache_size_bytes{tier=\"host\"} 110",
           "wideep_prompt_cache_records{tier=\"host\"} 11",
           "wideep_prompt_cache_max_bytes{tier=\"host\"} 1000",
           "wideep_prompt_cache_out{tier=\"host\"} 0",
           "wideep_prompt_cache_not_offered_total 5",
       }) {
    EXPECT_THAT(text, HasSubstr("\n" + std::string(line) + "\n"));
  }
}

TEST(PlaceStates, WhatARankHasCountedStaysWhenItIsStartedAgain) {
  PlaceStates places({"disk"});
  places.take({.rank = 0, .tiers = {tier("disk", 4)}});
  places.ended(0);
  places.take({.rank = 0, .tiers = {tier("disk", 8)}});
  EXPECT_EQ(places.json()["tiers"][0]["hits"], 12);
  places.take({.rank = 0, .tiers = {tier("disk", 1)}});  // its end is told later
  EXPECT_EQ(places.json()["tiers"][0]["hits"], 13);
}

// Ranks go on counting from their start, but those that are started after it.
TEST(PlaceStates, WhatRanksCountedForADeadProcessIsNotCountedAgain) {
  PlaceStates places({"disk"});
  places.go_on();
  places.take({.rank = 0, .not_offered = 7, .tiers = {tier("disk", 1000, 50)}});
  EXPECT_EQ(places.json()["tiers"][0]["hits"], 0);
  EXPECT_EQ(places.json()["tiers"][0]["size"], 50);
  places.take({.rank = 0, .not_offered = 8, .tiers = {tier("disk", 1002)}});
  places.ended(1);
  places.take({.rank = 1, .tiers = {tier("disk", 3)}});
  EXPECT_EQ(places.json()["tiers"][0]["hits"], 5);
  EXPECT_THAT(places.metrics(), HasSubstr("\nwideep_prompt_cache_not_offered_total 1\n"));
}

TEST(PlaceStates, APlaceIsOutForTheRanksThatLeaveItAlone) {
  PlaceStates places({"redis"});
  for (const int rank : {0, 1}) {
    run::StoreState state{.rank = rank, .tiers = {tier("redis", 0)}};
    state.tiers[0].is_out = true;
    places.take(state);
  }
  EXPECT_THAT(places.metrics(), HasSubstr("\nwideep_prompt_cache_out{tier=\"redis\"} 2\n"));
  places.take({.rank = 0, .tiers = {tier("redis", 0)}});
  EXPECT_EQ(places.json()["tiers"][0]["out"], 1);
  places.take({.rank = 1, .tiers = {}});  // it has none any more
  EXPECT_EQ(places.json()["tiers"][0]["out"], 0);
  run::StoreState state{.rank = 1, .tiers = {tier("redis", 0)}};
  state.tiers[0].is_out = true;
  places.take(state);
  EXPECT_EQ(places.json()["tiers"][0]["out"], 1);
  places.ended(1);
  EXPECT_EQ(places.json()["tiers"][0]["out"], 0);
}

TEST(PlaceStates, FetchesAreThoseOfWhoDecides) {
  PlaceStates places({"host"});
  EXPECT_THAT(places.metrics(), HasSubstr("\nwideep_prompt_cache_fetched_tokens_total 0\n"));
  places.connect([] {
    return run::FetchCounts{.looked = 9,
                            .fetched_requests = 4,
                            .fetched_tokens = 512,
                            .refused_as_dearer = 3,
                            .gave_up = 2,
                            .saved_seconds = 1.5};
  });
  const std::string text = places.metrics();
  EXPECT_THAT(text, HasSubstr("\nwideep_prompt_cache_looked_total 9\n"));
  EXPECT_THAT(text, HasSubstr("\nwideep_prompt_cache_fetched_tokens_total 512\n"));
  EXPECT_THAT(text, HasSubstr("\nwideep_prompt_cache_refused_as_dearer_total 3\n"));
  EXPECT_THAT(text, HasSubstr("\nwideep_prompt_cache_gave_up_total 2\n"));
  EXPECT_THAT(text, HasSubstr("\nwideep_prompt_cache_seconds_saved_total 1.5\n"));
  EXPECT_EQ(places.json()["saved_seconds"], 1.5);
  places.connect([] { return run::FetchCounts{.saved_seconds = 1.25}; });
  EXPECT_EQ(places.json()["saved_seconds"], 1.5);
}

TEST(PlaceStates, WithoutPlacesNothingIsSaid) {
  const PlaceStates places({});
  EXPECT_FALSE(places.exist());
  EXPECT_EQ(places.metrics(), "");
  EXPECT_TRUE(places.json().is_null());
}

}  // namespace
}  // namespace wideep::server
