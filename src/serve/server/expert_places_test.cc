// SPDX-License-Identifier: Apache-2.0
#include "server/expert_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

run::ExpertPlaces places_of(int rank, int64_t chosen) {
  return {
      .rank = rank,
      .num_owned = 16,
      .num_records = 5,
      .record_bytes = 100,
      .read_bytes = 4096,
      .read_seconds = 0.5,
      .layers = {2, 3},
      .counts = {
          {.chosen = chosen, .hits = 3, .waited_ns = 1'500'000'000, .came = 8, .num_resident = 2},
          {.chosen = 10,
           .hits = 4,
           .expected = 2,
           .read_in_vain = 1,
           .lost = 1,
           .came = 1,
           .num_resident = 1}}};
}

TEST(ExpertPlaces, NothingIsSaidWhereAllAreInMemory) {
  EXPECT_EQ(ExpertPlaces().metrics(), "");
  EXPECT_TRUE(ExpertPlaces().json().is_null());
}

// Ranks that stay when another one goes open their experts anew.
TEST(ExpertPlaces, ARankThatCountsLessHasBegunAnew) {
  ExpertPlaces places;
  run::ExpertPlaces before = places_of(0, 9);
  before.read_bytes = 1 << 20;
  places.take(before);
  const ExpertWork added = places.take(places_of(0, 5));
  EXPECT_EQ(added.counts.chosen, 15);
  EXPECT_EQ(added.disk_bytes, 4096u);
  EXPECT_EQ(added.memory_bytes, 700u);
  EXPECT_THAT(places.metrics(), HasSubstr("wideep_expert_layer_chosen_total{layer=\"2\"} 14\n"));
}

TEST(ExpertPlaces, RanksAndLayers) {
  ExpertPlaces places;
  EXPECT_EQ(places.take(places_of(0, 5)).counts.chosen, 15);
  const ExpertWork added = places.take(places_of(0, 7));
  EXPECT_EQ(added.counts.chosen, 2);
  EXPECT_EQ(added.counts.hits, 0);
  EXPECT_EQ(added.disk_bytes, 0u);
  EXPECT_EQ(places.take(places_of(2, 1)).memory_bytes, 700u);
  const std::string metrics = places.metrics();
  EXPECT_THAT(metrics, HasSubstr("wideep_experts_chosen_total{ep_rank=\"0\"} 17\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_experts_chosen_resident_total{ep_rank=\"2\"} 7\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_experts_resident{ep_rank=\"0\"} 3\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_expert_wait_seconds_total{ep_rank=\"0\"} 1.5\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_expert_read_bytes_total{ep_rank=\"0\"} 4096\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_expert_memory_bytes_total{ep_rank=\"0\"} 700\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_expert_layer_chosen_total{layer=\"2\"} 8\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_expert_layer_chosen_resident_total{layer=\"3\"} 8\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_expert_layer_resident{layer=\"2\"} 4\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_experts_came_total{ep_rank=\"0\"} 9\n"));
  EXPECT_THAT(metrics, HasSubstr("wideep_experts_left_total{ep_rank=\"0\"} 6\n"));
  const auto json = places.json();
  EXPECT_EQ(json["ranks"].size(), 2u);
  EXPECT_EQ(json["ranks"][1]["rank"], 2);
  EXPECT_EQ(json["ranks"][0]["owned"], 16);
  EXPECT_EQ(json["layers"][0]["layer"], 2);
  EXPECT_EQ(json["layers"][0]["chosen"], 8);
  EXPECT_EQ(json["layers"][1]["read_ahead"], 4);
  EXPECT_EQ(json["ranks"][0]["lost"], 1);
}

// Counts of layers never fall, whoever dies.
TEST(ExpertPlaces, ARankThatIsStartedAgainCountsFromZero) {
  ExpertPlaces places;
  places.take(places_of(0, 5));
  places.take(places_of(1, 5));
  places.ended(0);
  EXPECT_THAT(places.metrics(), Not(HasSubstr("ep_rank=\"0\"")));
  EXPECT_THAT(places.metrics(), HasSubstr("wideep_expert_layer_chosen_total{layer=\"2\"} 10\n"));
  EXPECT_THAT(places.metrics(), HasSubstr("wideep_expert_layer_resident{layer=\"2\"} 2\n"));
  EXPECT_EQ(places.take(places_of(0, 1)).counts.chosen, 11);
  EXPECT_THAT(places.metrics(), HasSubstr("wideep_expert_layer_chosen_total{layer=\"2\"} 11\n"));
}

TEST(ExpertPlaces, AnotherServingProcessDoesNotCountWhatTheDeadOneHad) {
  ExpertPlaces places;
  places.go_on();
  EXPECT_EQ(places.take(places_of(0, 5)).counts.chosen, 0);
  EXPECT_EQ(places.take(places_of(0, 6)).counts.chosen, 1);
  EXPECT_THAT(places.metrics(), HasSubstr("wideep_expert_layer_chosen_total{layer=\"2\"} 1\n"));
  EXPECT_THAT(places.metrics(), HasSubstr("wideep_experts_chosen_total{ep_rank=\"0\"} 16\n"));
  places.ended(0);
  EXPECT_EQ(places.take(places_of(0, 5)).counts.chosen, 15);
}

}  // namespace
}  // namespace wideep::server
