// SPDX-License-Identifier: Apache-2.0
#include "measure/ep/played_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/sanitized.h"

namespace wideep::measure {
namespace {

std::unique_ptr<PlayedGroup> group_of(const PlayedOptions& options) {
  auto group = PlayedGroup::create(options);
  EXPECT_TRUE(group.ok()) << group.status().message();
  return std::move(group).value();
}

TEST(PlayedGroup, DoesTheWorkOfRounds) {
  const auto group = group_of({.num_ranks = 8, .tokens = 16});
  PlayedTimes times;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(group->round(&times).ok());
  for (const std::vector<double>& each : times) EXPECT_EQ(each.size(), 5u);
  std::vector<int64_t> expected(256);
  int64_t rows = 0;
  for (int rank = 0; rank < 8; ++rank) {
    const auto counts = group->counts(rank);
    for (size_t e = 0; e < counts.size(); ++e) expected[e] += counts[e];
    // Rank 0 has the first 32 experts.
    rows += std::accumulate(counts.begin(), counts.begin() + 32, int64_t{0});
  }
  EXPECT_TRUE(std::ranges::equal(group->totals(), expected));
  EXPECT_EQ(group->rows_received(), rows);
  EXPECT_GT(group->lists_received(), 0);
  EXPECT_LT(group->lists_received(), rows);  // own tokens have none
}

TEST(PlayedGroup, RanksWithoutTokensTakePart) {
  const auto group = group_of({.num_ranks = 4, .tokens = 0});
  PlayedTimes times;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(group->round(&times).ok());
  EXPECT_EQ(group->rows_received(), 0);
}

TEST(PlayedGroup, RefusesGroupsThatExpertsDoNotFit) {
  const auto group = PlayedGroup::create({.num_ranks = 7});
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.status().message(), "ranks: expected a divisor of the 256 experts, found 7");
}

// The least time of each step over rounds of the groups in turn, so that other programs disturb
// little.
std::vector<std::array<double, kPlayedSteps>> min_times(
    const std::vector<std::unique_ptr<PlayedGroup>>& groups) {
  std::vector<std::array<double, kPlayedSteps>> min(groups.size());
  for (auto& each : min) each.fill(1e18);
  for (int turn = 0; turn < 40; ++turn) {
    for (size_t i = 0; i < groups.size(); ++i) {
      PlayedTimes times;
      for (int round = 0; round < 10; ++round) EXPECT_TRUE(groups[i]->round(&times).ok());
      for (size_t step = 0; step < kPlayedSteps; ++step) {
        min[i][step] = std::min(min[i][step], *std::ranges::min_element(times[step]));
      }
    }
  }
  return min;
}

// With eight times the ranks and as many rows: what a rank writes of its counts, and what a row
// costs beyond the flags, stays. Reading all counts and flags grows with the group, no more.
TEST(PlayedGroup, StepsCostByRowsNotByRanks) {
  if (base::kSanitized) GTEST_SKIP() << "times mean nothing under a sanitizer";
  std::vector<std::unique_ptr<PlayedGroup>> groups;
  for (const int ranks : {8, 64}) {
    for (const int tokens : {0, 64})
      groups.push_back(group_of({.num_ranks = ranks, .tokens = tokens}));
  }
  auto min = min_times(groups);
  const auto ns = [&](size_t group, PlayedStep step) {
    return min[group][static_cast<size_t>(step)];
  };
  const auto expand_of_row = [&](size_t without, size_t with) {
    return (ns(with, PlayedStep::kExpand) - ns(without, PlayedStep::kExpand)) /
           groups[with]->rows_received();
  };
  const auto finalize_of_row = [&](size_t with) { return ns(with, PlayedStep::kFinalize) / 512; };
  // Beside other programs the least times come late.
  for (int i = 0; i < 4 && expand_of_row(2, 3) >= 1.6 * expand_of_row(0, 1); ++i) {
    const auto more = min_times(groups);
    for (size_t group = 0; group < min.size(); ++group) {
      std::ranges::transform(min[group], more[group], min[group].begin(),
                             [](double a, double b) { return std::min(a, b); });
    }
  }
  EXPECT_LT(expand_of_row(2, 3), 1.6 * expand_of_row(0, 1));
  EXPECT_LT(finalize_of_row(3), 1.6 * finalize_of_row(1));
  EXPECT_LT(ns(3, PlayedStep::kPrepare), 4 * ns(1, PlayedStep::kPrepare));
  EXPECT_LT(ns(3, PlayedStep::kCounts), 16 * ns(1, PlayedStep::kCounts));
}

}  // namespace
}  // namespace wideep::measure
