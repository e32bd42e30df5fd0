// SPDX-License-Identifier: Apache-2.0
#include "run/statistics_recorder.h"

#include <gtest/gtest.h>

#include "base/scratch_directory.h"
#include "recordings/statistics_reader.h"

namespace wideep::run {
namespace {

// Two ranks, two layers (1 and 4), three experts; iteration i of rank r counts {i, r, layer}.
void record(const std::string& directory, IterationRange range, int64_t iterations, bool finished) {
  for (int rank = 0; rank < 2; ++rank) {
    StatisticsRecorder recorder({directory, range}, rank, {.num_experts = 3, .top_k = 2});
    for (int64_t i = 0; i < iterations; ++i) {
      for (const int layer : {1, 4}) {
        const std::vector<int32_t> counts = {static_cast<int32_t>(i), rank, layer};
        ASSERT_TRUE(recorder.add(i, layer, counts).ok());
      }
    }
    ASSERT_TRUE(recorder.finish(finished).ok());
  }
}

TEST(StatisticsRecorder, RecordsTheRangeAndNothingElse) {
  const base::ScratchDirectory directory;
  record(directory.path(), {2, 5}, 9, true);
  const auto statistics = recordings::read_statistics(directory.path());
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->iter_start, 2);
  EXPECT_EQ(statistics->iter_stop, 5);
  EXPECT_EQ(statistics->layers, (std::vector<int>{1, 4}));
  EXPECT_EQ(statistics->row(1, 1, 1)[0], 3);  // iteration 3
  EXPECT_EQ(statistics->row(1, 1, 1)[1], 1);  // rank 1
  EXPECT_EQ(statistics->row(1, 1, 1)[2], 4);  // layer 4
}

TEST(StatisticsRecorder, ARunThatEndsInsideTheRangeHasItsTrueRange) {
  const base::ScratchDirectory directory;
  record(directory.path(), {2, 100}, 6, true);
  const auto statistics = recordings::read_statistics(directory.path());
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->iter_start, 2);
  EXPECT_EQ(statistics->iter_stop, 6);
}

TEST(StatisticsRecorder, AFailedRunLeavesOutTheIterationThatOthersMayNotHaveFinished) {
  const base::ScratchDirectory directory;
  record(directory.path(), {2, 100}, 6, false);
  const auto statistics = recordings::read_statistics(directory.path());
  ASSERT_TRUE(statistics.ok()) << statistics.status().message();
  EXPECT_EQ(statistics->iter_stop, 5);
}

TEST(StatisticsRecorder, NothingIsWrittenWhenTheRangeIsNeverReached) {
  const base::ScratchDirectory directory;
  record(directory.path(), {50, 60}, 6, true);
  EXPECT_EQ(directory.num_files(), 0);
}

}  // namespace
}  // namespace wideep::run
