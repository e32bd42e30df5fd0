// SPDX-License-Identifier: Apache-2.0
#include "plan/replication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace wideep::balance {
namespace {

using testing::ElementsAre;

std::vector<int> replicate(std::vector<double> load, int num_slots) {
  return replicate_trt(load, num_slots);
}

TEST(ReplicateTrt, GoldenVectors) {
  EXPECT_THAT(replicate({1, 2, 3, 4}, 4), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(replicate({0, 0, 0, 0}, 6), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(replicate({1, 4, 2, 1}, 8), ElementsAre(1, 4, 2, 1));
  EXPECT_THAT(replicate({10, 5, 2, 15, 8}, 9), ElementsAre(2, 1, 1, 3, 2));
  EXPECT_THAT(replicate({0, 10, 0}, 4), ElementsAre(1, 2, 1));
  EXPECT_THAT(replicate({1, 1, 1, 1}, 4), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(replicate({1, 3, 2, 1}, 6), ElementsAre(1, 2, 2, 1));
  EXPECT_THAT(replicate({1, 100, 10}, 4), ElementsAre(1, 2, 1));
  EXPECT_THAT(replicate({2, 3, 4, 5, 6, 7}, 6), ElementsAre(1, 1, 1, 1, 1, 1));
}

TEST(ReplicateTrt, TiesGoToTheLargerId) {
  EXPECT_THAT(replicate({5, 5, 5}, 4), ElementsAre(1, 1, 2));
  EXPECT_THAT(replicate({6, 3, 6}, 5), ElementsAre(2, 1, 2));
  // 6/2 = 3 ties with expert 1's 3: expert 2 first, then 1, then 0.
  EXPECT_THAT(replicate({6, 3, 6}, 6), ElementsAre(2, 1, 3));
}

// 2^24 and 2^24 + 1 are one float32: a tie, although they differ as integers.
TEST(ReplicateTrt, RoundsLoadsToFloat32) {
  EXPECT_THAT(replicate({16777217, 16777216}, 3), ElementsAre(1, 2));
}

// The rule taken literally: look at every expert for every slot.
std::vector<int> replicate_slowly(const std::vector<double>& load, int num_slots) {
  std::vector<int> replicas(load.size(), 1);
  for (int slot = static_cast<int>(load.size()); slot < num_slots; ++slot) {
    size_t best = 0;
    for (size_t expert = 1; expert < load.size(); ++expert) {
      if (load[expert] / replicas[expert] >= load[best] / replicas[best]) best = expert;
    }
    ++replicas[best];
  }
  return replicas;
}

TEST(ReplicateTrt, AgreesWithASimpleImplementation) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int num_experts = 1 + static_cast<int>(random() % 40);
    const int num_slots = num_experts + static_cast<int>(random() % 60);
    std::vector<double> load(static_cast<size_t>(num_experts));
    // Few distinct values: many ties.
    for (double& tokens : load) tokens = static_cast<double>(random() % 12);
    load[0] = 1;  // never all zero
    const std::vector<int> replicas = replicate_trt(load, num_slots);
    ASSERT_EQ(replicas, replicate_slowly(load, num_slots)) << "round " << round;
    ASSERT_EQ(std::accumulate(replicas.begin(), replicas.end(), 0), num_slots);
  }
}

}  // namespace
}  // namespace wideep::balance
