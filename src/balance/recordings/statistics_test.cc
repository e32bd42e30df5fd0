// SPDX-License-Identifier: Apache-2.0
#include "recordings/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::recordings {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// [iteration 10, 11][layer 2, 5][rank 0, 1][expert 0, 1] = 1, 2, ..., 16.
ExpertStatistics counted() {
  ExpertStatistics statistics;
  statistics.num_experts = 2;
  statistics.ep_size = 2;
  statistics.iter_start = 10;
  statistics.iter_stop = 12;
  statistics.layers = {2, 5};
  for (int64_t i = 1; i <= 16; ++i) statistics.counts.push_back(i);
  return statistics;
}

TEST(ExpertStatistics, RowsAndSums) {
  const ExpertStatistics statistics = counted();
  EXPECT_EQ(statistics.num_iterations(), 2);
  EXPECT_EQ(statistics.num_layers(), 2);
  EXPECT_THAT(statistics.row(0, 0, 0), ElementsAre(1, 2));
  EXPECT_THAT(statistics.row(0, 1, 1), ElementsAre(7, 8));
  EXPECT_THAT(statistics.row(1, 0, 1), ElementsAre(11, 12));
  EXPECT_THAT(statistics.iteration_load(1, 1), ElementsAre(13 + 15, 14 + 16));
  EXPECT_THAT(statistics.layer_load(0), ElementsAre(1 + 3 + 9 + 11, 2 + 4 + 10 + 12));
}

TEST(CheckStatistics, HoldsWhatIsStoredAgainstWhatIsClaimed) {
  EXPECT_TRUE(check_statistics(counted()).ok());
  const auto complaint = [](auto change) {
    ExpertStatistics statistics = counted();
    change(&statistics);
    return check_statistics(statistics).message();
  };
  EXPECT_EQ(complaint([](auto* s) { s->iter_stop = 13; }),
            "expected 24 counts (3 iterations × 2 layers × 2 ranks × 2 experts), found 16");
  EXPECT_THAT(complaint([](auto* s) { s->ep_size = 1; }), HasSubstr("expected 8 counts"));
  EXPECT_THAT(complaint([](auto* s) { s->layers.pop_back(); }), HasSubstr("expected 8 counts"));
  EXPECT_THAT(complaint([](auto* s) { s->iter_stop = s->iter_start; }),
              HasSubstr("at least one expert, rank, iteration and layer"));
  EXPECT_THAT(complaint([](auto* s) { s->layers = {5, 2}; }), HasSubstr("ascending order"));
  EXPECT_THAT(complaint([](auto* s) { s->layers = {2, 2}; }), HasSubstr("ascending order"));
  EXPECT_THAT(complaint([](auto* s) { s->counts[3] = -1; }), HasSubstr("found -1"));
  EXPECT_THAT(complaint([](auto* s) { s->counts[3] = kMaxTokens; }), HasSubstr("exceed 2^53"));
  EXPECT_THAT(complaint([](auto* s) { s->counts.assign(16, 0); }), HasSubstr("every count is 0"));
}

TEST(SelectIterations, KeepsTheRange) {
  const Result<ExpertStatistics> second = select_iterations(counted(), 11, std::nullopt);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->iter_start, 11);
  EXPECT_EQ(second->iter_stop, 12);
  EXPECT_THAT(second->counts, ElementsAre(9, 10, 11, 12, 13, 14, 15, 16));
  const Result<ExpertStatistics> first = select_iterations(counted(), std::nullopt, 11);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(first->layer_load(1), ElementsAre(5 + 7, 6 + 8));
  EXPECT_EQ(*select_iterations(counted(), std::nullopt, std::nullopt), counted());
}

TEST(SelectIterations, RefusesIterationsThatWereNotRecorded) {
  EXPECT_THAT(select_iterations(counted(), 9, 12).status().message(),
              HasSubstr("within the recorded 10 to 12"));
  EXPECT_FALSE(select_iterations(counted(), 10, 13).ok());
  EXPECT_FALSE(select_iterations(counted(), 11, 11).ok());
  EXPECT_FALSE(select_iterations(counted(), 12, 11).ok());
}

}  // namespace
}  // namespace wideep::recordings
