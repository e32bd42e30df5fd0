// SPDX-License-Identifier: Apache-2.0
//
// Two iterations of two layers are few enough to work out every mean, deviation and ratio by hand;
// the sums stand beside the counts. Unused slots must not lower a mean, or a placement with a dead
// rank would look less balanced than it is. The table is held character by character.
#include "recordings/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace wideep::recordings {
namespace {

using balance::kUnusedSlot;
using balance::ModelPlacement;
using balance::Placement;
using balance::slot_loads;
using testing::ElementsAre;
using testing::HasSubstr;

// Two iterations, two layers, one recording rank.
ExpertStatistics small_statistics() {
  ExpertStatistics statistics;
  statistics.num_experts = 4;
  statistics.iter_start = 5;
  statistics.iter_stop = 7;
  statistics.layers = {1, 3};
  statistics.counts = {
      10, 20, 30, 40,  // iteration 5, layer 1: ranks 30, 70
      4,  4,  4,  4,   //              layer 3: ranks 8, 8
      40, 20, 0,  20,  // iteration 6, layer 1: ranks 60, 20
      0,  0,  0,  12,  //              layer 3: ranks 0, 12
  };
  return statistics;
}

// Two ranks with a slot and a borrowed one each: what ran, without a placement.
TEST(ReportSlots, IsOfWhatTheRunDid) {
  ExpertStatistics statistics = small_statistics();
  EXPECT_FALSE(report_slots(statistics, LoadBy::kRank).ok());  // of experts
  statistics.slots = {.num_ranks = 2, .borrowed_per_rank = 1, .num_logical_experts = 2};
  const auto by_rank = report_slots(statistics, LoadBy::kRank);
  ASSERT_TRUE(by_rank.ok());
  EXPECT_DOUBLE_EQ(by_rank->rows[0].summary.mean, 45.0);
  EXPECT_DOUBLE_EQ(by_rank->rows[0].summary.imbalance_ratio, 0.45);
  EXPECT_DOUBLE_EQ(by_rank->rows[1].summary.imbalance_ratio, 0.5);
  EXPECT_DOUBLE_EQ(by_rank->average.imbalance_ratio, 0.475);
  // Layer 3: 4, 4, 4, 4, then 0, 0, 12: slot 1 is borrowed and had no tokens.
  const auto by_slot = report_slots(statistics, LoadBy::kSlot);
  ASSERT_TRUE(by_slot.ok());
  EXPECT_DOUBLE_EQ(by_slot->rows[1].summary.mean, 4.0);
  EXPECT_DOUBLE_EQ(by_slot->rows[1].summary.imbalance_ratio, 1.0);  // (0 + 2) / 2
  // Layer 1: 10, 20, 30, 40, then 40, 20, 0, 20: the slot without tokens is no borrowed one.
  EXPECT_DOUBLE_EQ(by_slot->rows[0].summary.mean, (25.0 + 20.0) / 2);
}

TEST(ReportLoad, AveragesIterationsAndLayers) {
  const ExpertStatistics statistics = small_statistics();
  const Result<ModelPlacement> linear = linear_model_placement(statistics, 2);
  ASSERT_TRUE(linear.ok());
  const Result<LoadReport> report = report_load(statistics, *linear, LoadBy::kRank);
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->rows.size(), 2u);

  EXPECT_EQ(report->rows[0].layer, 1);
  EXPECT_DOUBLE_EQ(report->rows[0].summary.mean, 45.0);  // (50 + 40) / 2
  // Two values a, b have the unbiased std |a − b| / √2: both iterations 40 / √2.
  EXPECT_DOUBLE_EQ(report->rows[0].summary.std, 40.0 / std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(report->rows[0].summary.imbalance_ratio, 0.45);  // (0.4 + 0.5) / 2

  EXPECT_EQ(report->rows[1].layer, 3);
  EXPECT_DOUBLE_EQ(report->rows[1].summary.mean, 7.0);             // (8 + 6) / 2
  EXPECT_DOUBLE_EQ(report->rows[1].summary.imbalance_ratio, 0.5);  // (0 + 1) / 2

  EXPECT_DOUBLE_EQ(report->average.mean, 26.0);
  EXPECT_DOUBLE_EQ(report->average.imbalance_ratio, 0.475);
}

TEST(ReportLoad, BySlot) {
  const ExpertStatistics statistics = small_statistics();
  const Result<ModelPlacement> linear = linear_model_placement(statistics, 2);
  ASSERT_TRUE(linear.ok());
  const Result<LoadReport> report = report_load(statistics, *linear, LoadBy::kSlot);
  ASSERT_TRUE(report.ok());
  EXPECT_DOUBLE_EQ(report->rows[0].summary.mean, 22.5);            // (25 + 20) / 2
  EXPECT_DOUBLE_EQ(report->rows[0].summary.imbalance_ratio, 0.8);  // (0.6 + 1) / 2
}

TEST(ReportLoad, ProjectsAPlacement) {
  const ExpertStatistics statistics = small_statistics();
  ModelPlacement projected;
  projected.num_slots = 6;
  // Slots: [3 0 2] [3 0 1]. Iteration 5, layer 1: 20 + 5 + 30 = 55 and 20 + 5 + 20 = 45.
  projected.layers[1] = projected.layers[3] = Placement{4, 2, {3, 0, 2, 3, 0, 1}};
  const Result<LoadReport> report = report_load(statistics, projected, LoadBy::kRank);
  ASSERT_TRUE(report.ok());
  // Iteration 6, layer 1: 10 + 20 + 0 = 30 and 10 + 20 + 20 = 50.
  EXPECT_NEAR(report->rows[0].summary.imbalance_ratio, (0.1 + 0.25) / 2, 1e-15);
}

// A dead rank, and a slot of rank 0 that is not there: neither lowers the mean.
TEST(ReportLoad, UnusedSlotsDoNotCount) {
  const ExpertStatistics statistics = small_statistics();
  ModelPlacement projected;
  projected.num_slots = 9;
  const Placement placement{
      4, 3, {0, 1, kUnusedSlot, kUnusedSlot, kUnusedSlot, kUnusedSlot, 2, 3, 3}};
  projected.layers[1] = projected.layers[3] = placement;
  EXPECT_THAT(slot_loads(placement, std::vector<int64_t>{10, 20, 30, 40}),
              ElementsAre(10.0, 20.0, 0.0, 0.0, 0.0, 0.0, 30.0, 20.0, 20.0));
  const Result<LoadReport> ranks = report_load(statistics, projected, LoadBy::kRank);
  ASSERT_TRUE(ranks.ok());
  EXPECT_DOUBLE_EQ(ranks->rows[0].summary.mean, 45.0);
  EXPECT_NEAR(ranks->rows[0].summary.imbalance_ratio, (0.4 + 0.5) / 2, 1e-15);
  const Result<LoadReport> slots = report_load(statistics, projected, LoadBy::kSlot);
  ASSERT_TRUE(slots.ok());
  EXPECT_DOUBLE_EQ(slots->rows[0].summary.mean, 18.0);  // (20 + 16) / 2
}

TEST(ReportLoad, RefusesAPlacementOfAnotherModel) {
  const ExpertStatistics statistics = small_statistics();
  ModelPlacement placement;
  placement.layers[1] = Placement{4, 2, {0, 1, 2, 3}};
  EXPECT_THAT(report_load(statistics, placement, LoadBy::kRank).status().message(),
              HasSubstr("layer 3: statistics but no placement"));
  placement.layers[3] = Placement{2, 2, {0, 1}};
  EXPECT_THAT(report_load(statistics, placement, LoadBy::kRank).status().message(),
              HasSubstr("layer 3: expected a placement of 4 experts, found 2"));
}

TEST(LoadTable, HasAHeadingARowPerLayerAndTheAverage) {
  LoadReport report;
  report.rows = {{3, {1024, 491.65, 1.564}}};
  report.average = {1024, 491.65, 1.564};
  EXPECT_EQ(load_table(report),
            "Load statistics:\n"
            "layer              mean            std  imbalance-ratio\n"
            "3              1024.000        491.650         1.564000\n"
            "average        1024.000        491.650         1.564000\n");
}

}  // namespace
}  // namespace wideep::recordings
