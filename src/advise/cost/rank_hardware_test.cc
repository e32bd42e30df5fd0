// SPDX-License-Identifier: Apache-2.0
#include "cost/rank_hardware.h"

#include <gtest/gtest.h>

namespace wideep::cost {
namespace {

using kernels::WeightFormat;

// Four cores with 100 bytes per second each, 200 together, and caches ten times as fast.
Hardware cores() {
  return {.name = "cores",
          .devices_per_node = 4,
          .divisible = true,
          .memory_bandwidth = 100.0,
          .node_bandwidth = 200.0,
          .cached_bandwidth = {{1e6, 1000.0}, {1e7, 100.0}},
          .cached_node_bandwidth = {{1e6, 4000.0}, {1e7, 200.0}},
          .peak = {{WeightFormat::kBf16, 1e6}},
          .of_formats = {{WeightFormat::kBf16, {.experts = {.overhead = 1.0, .compute = 1.0}}}},
          .of_all_cores = {{WeightFormat::kBf16, {.experts = {.overhead = 3.0, .compute = 0.5}}}}};
}

TEST(RankHardware, RanksDivideCoresAndBandwidth) {
  const auto rank = [](int ranks, double bytes) {
    return rank_hardware(cores(), WeightFormat::kBf16, ranks, bytes);
  };
  EXPECT_EQ(rank(1, 1e8).peak.at(WeightFormat::kBf16), 4e6);
  EXPECT_EQ(rank(1, 1e8).memory_bandwidth, 200.0);
  EXPECT_EQ(rank(4, 1e8).peak.at(WeightFormat::kBf16), 1e6);
  EXPECT_EQ(rank(4, 1e8).memory_bandwidth, 50.0);
  EXPECT_EQ(rank(16, 1e8).memory_bandwidth, 50.0);  // four run at a time
  EXPECT_EQ(rank(4, 1e6).memory_bandwidth, 1000.0);
  EXPECT_EQ(rank(1, 1e8).row_bandwidth(), 4000.0);
  EXPECT_EQ(turns_of_ranks(cores(), 16), 4.0);
}

TEST(RankHardware, NodesDivideRanks) {
  Hardware machine = cores();
  machine.nodes = 4;
  EXPECT_EQ(ranks_of_node(machine, 4), 1);
  EXPECT_EQ(ranks_of_node(machine, 6), 2);
  EXPECT_EQ(turns_of_ranks(machine, 16), 1.0);
  EXPECT_EQ(turns_of_ranks(machine, 32), 2.0);
  // One rank of each node has all of its cores, and reads its part of the bytes.
  const Hardware rank = rank_hardware(machine, WeightFormat::kBf16, 4, 4e6);
  EXPECT_EQ(rank.peak.at(WeightFormat::kBf16), 4e6);
  EXPECT_EQ(rank.memory_bandwidth, 4000.0);
  machine.nodes_share_cores = true;
  EXPECT_EQ(turns_of_ranks(machine, 16), 4.0);
}

TEST(RankHardware, ConstantsAreThoseOfItsCores) {
  const auto overhead = [](int ranks) {
    return rank_hardware(cores(), WeightFormat::kBf16, ranks, 1e8)
        .experts_in(WeightFormat::kBf16)
        .overhead;
  };
  EXPECT_EQ(overhead(1), 3.0);
  EXPECT_EQ(overhead(2), 2.0);  // half way by the logarithm
  EXPECT_EQ(overhead(4), 1.0);
  EXPECT_EQ(overhead(8), 1.0);
}

TEST(RankHardware, RanksInTurnsFindDenseWeightsInCaches) {
  Hardware machine = cores();
  const auto bandwidth = [&](int ranks) {
    return dense_hardware(machine, WeightFormat::kBf16, ranks, 1e8).memory_bandwidth;
  };
  EXPECT_EQ(bandwidth(16), 50.0);
  machine.shared_reads = 1.0;
  EXPECT_EQ(bandwidth(4), 50.0);
  EXPECT_DOUBLE_EQ(bandwidth(16), 1.0 / (0.25 / 50.0 + 0.75 / 1000.0));
}

TEST(RankHardware, OthersStayAsTheyAre) {
  Hardware machine = cores();
  machine.divisible = false;
  EXPECT_EQ(rank_hardware(machine, WeightFormat::kBf16, 8, 1e6), machine);
}

}  // namespace
}  // namespace wideep::cost
