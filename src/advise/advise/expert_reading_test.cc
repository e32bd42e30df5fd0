// SPDX-License-Identifier: Apache-2.0
//
// Times that are worked out by hand, for layers so small that every number of misses can be listed.
#include "advise/expert_reading.h"

#include <gtest/gtest.h>

namespace wideep::advise {
namespace {

// Two layers of two experts, both chosen: 2 ms of computing a layer, 1 ms for an expert; a record of
// 3 MB is read in 3 ms.
constexpr IterationInMemory kBoth{
    .tokens = 1.0, .reads = 2.0, .experts = 4e-3, .rest = 1e-3, .dense_bytes = 5e6};
constexpr StoredExperts kTwoLayers{
    .num_layers = 2, .num_experts = 2, .nodes = 1, .record_bytes = 3e6, .disk_bandwidth = 1e9};

TEST(ReadingTime, AllInMemoryOrNothing) {
  const ReadingTime all = reading_time(kBoth, kTwoLayers, 1.0);
  EXPECT_NEAR(all.seconds, 5e-3, 1e-12);
  EXPECT_EQ(all.disk_bytes, 0.0);
  EXPECT_NEAR(all.memory_bytes, 5e6 + 12e6, 1e-3);
  // Each layer: max(2, 2 · 3 + 1) = 7 ms.
  const ReadingTime none = reading_time(kBoth, kTwoLayers, 0.0);
  EXPECT_NEAR(none.seconds, 15e-3, 1e-12);
  EXPECT_NEAR(none.disk_bytes, 12e6, 1e-3);
  EXPECT_NEAR(none.memory_bytes, 5e6, 1e-3);
  EXPECT_NEAR(none.bound_seconds(), 12e-3, 1e-12);
  EXPECT_NEAR(none.seconds_without_overlap(), 17e-3, 1e-12);
}

// No miss, one and two with 1/4, 1/2 and 1/4: 2, 3 + 1 and 6 + 1 ms, in the mean 4.25.
TEST(ReadingTime, TheMeanOverHowManyMiss) {
  const ReadingTime half = reading_time(kBoth, kTwoLayers, 0.5);
  EXPECT_NEAR(half.seconds, 2 * 4.25e-3 + 1e-3, 1e-12);
  EXPECT_NEAR(half.computing, 5e-3, 1e-12);
  EXPECT_NEAR(half.reading, 6e-3, 1e-12);
  EXPECT_NEAR(half.bound_seconds(), 6e-3, 1e-12);
  EXPECT_NEAR(half.tokens_per_second(), 1 / 9.5e-3, 1e-6);
}

// A disk that is fast enough is never waited for, but for the expert that arrives last.
TEST(ReadingTime, AFastDisk) {
  StoredExperts fast = kTwoLayers;
  fast.disk_bandwidth = 6e9;  // 0.5 ms a record: max(2, 0.5 + 1) and max(2, 1 + 1)
  EXPECT_NEAR(reading_time(kBoth, fast, 0.5).seconds, 5e-3, 1e-12);
}

// Two nodes with an expert each, 1 ms of computing a layer: with 1/4 neither misses, else both wait
// for 3 + 1 ms; 1/4 · 1 + 3/4 · 4 = 3.25.
TEST(ReadingTime, OfSeveralNodesTheOneThatMissesMostCounts) {
  IterationInMemory iteration = kBoth;
  iteration.experts = 2e-3;
  StoredExperts stored = kTwoLayers;
  stored.nodes = 2;
  const ReadingTime half = reading_time(iteration, stored, 0.5);
  EXPECT_NEAR(half.seconds, 2 * 3.25e-3 + 1e-3, 1e-12);
  EXPECT_NEAR(half.reading, 3e-3, 1e-12);  // both disks read half of 6 MB
}

// More ways to choose from 1,030 experts than a double holds.
TEST(ReadingTime, OfThousandsOfExperts) {
  StoredExperts stored = kTwoLayers;
  stored.num_experts = 4096;
  IterationInMemory iteration = kBoth;
  iteration.reads = 64.0;
  const ReadingTime half = reading_time(iteration, stored, 0.5);
  // 32 of them miss in the mean: 96 ms of reading a layer, and the last one's computing.
  EXPECT_NEAR(half.seconds, 2 * 96e-3 + 1e-3, 2e-3);
}

TEST(ReadingTime, BytesAreOfAToken) {
  IterationInMemory iteration = kBoth;
  iteration.tokens = 4.0;
  const ReadingTime half = reading_time(iteration, kTwoLayers, 0.5);
  EXPECT_NEAR(half.disk_bytes, 1.5e6, 1e-3);
  EXPECT_NEAR(half.memory_bytes, (5e6 + 6e6) / 4, 1e-3);
  EXPECT_NEAR(half.tokens_per_second(), 4 / 9.5e-3, 1e-6);
}

// As many experts as large models have; the bound is below, the sum above.
TEST(ReadingTime, BetweenTheBoundAndNoOverlap) {
  const IterationInMemory iteration{
      .tokens = 1.0, .reads = 8.0, .experts = 0.2, .rest = 0.2, .dense_bytes = 1e10};
  const StoredExperts stored{.num_layers = 58,
                             .num_experts = 256,
                             .nodes = 1,
                             .record_bytes = 27.5e6,
                             .disk_bandwidth = 7e9};
  for (const double hit_rate : {0.0, 0.3, 0.6, 0.9, 0.99, 1.0}) {
    const ReadingTime time = reading_time(iteration, stored, hit_rate);
    EXPECT_GE(time.seconds, time.bound_seconds() - 1e-9) << hit_rate;
    EXPECT_LE(time.seconds, time.seconds_without_overlap() + 1e-9) << hit_rate;
  }
}

}  // namespace
}  // namespace wideep::advise
