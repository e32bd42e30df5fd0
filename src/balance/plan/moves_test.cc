// SPDX-License-Identifier: Apache-2.0
#include "plan/moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace wideep::balance {
namespace {

using ::testing::ElementsAre;

TEST(Moves, CountsReplicasThatARankDidNotHold) {
  const Placement from{4, 2, {0, 1, 2, 3, 0, 1}};
  EXPECT_EQ(count_moves(from, from), 0);
  EXPECT_EQ(count_moves(from, {4, 2, {2, 0, 1, 1, 3, 0}}), 0);  // other slots of the same ranks
  EXPECT_EQ(count_moves(from, {4, 2, {0, 1, 3, 3, 0, 2}}), 2);
  EXPECT_EQ(count_moves(from, {4, 2, {0, 2, 2, 3, 0, 1}}), 1);  // twice now
}

TEST(Moves, AlignedExpertsKeepTheirSlots) {
  const Placement from{5, 2, {0, 1, 2, 3, 0, 4}};
  const Placement to{5, 2, {2, 3, 0, 4, 1, 3}};
  EXPECT_THAT(align_slots(from, to).slot_to_expert, ElementsAre(0, 3, 2, 3, 1, 4));
  LayerPlan plan{to, {0.2, 0.3, 1, 0.4, 1, 0.7}};
  align_slots(from, &plan);
  EXPECT_THAT(plan.placement.slot_to_expert, ElementsAre(0, 3, 2, 3, 1, 4));
  EXPECT_THAT(plan.shares, ElementsAre(1, 0.3, 0.2, 0.7, 1, 0.4));
}

std::map<std::pair<int, int32_t>, int> pairs_of(const Placement& placement) {
  std::map<std::pair<int, int32_t>, int> pairs;
  for (int rank = 0; rank < placement.ep_size; ++rank) {
    for (int32_t expert : placement.experts_of_rank(rank)) ++pairs[{rank, expert}];
  }
  return pairs;
}

TEST(Moves, AgreesWithTheDifferenceOfMultisetsOnRandomPlacements) {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    Placement from{6, 1 + static_cast<int>(random() % 4), {}}, to{from};
    const int num_slots = from.ep_size * (1 + static_cast<int>(random() % 6));
    for (int slot = 0; slot < num_slots; ++slot) {
      from.slot_to_expert.push_back(static_cast<int32_t>(random() % 6));
      to.slot_to_expert.push_back(static_cast<int32_t>(random() % 6));
    }
    int expected = 0;
    auto before = pairs_of(from);
    for (const auto& [pair, count] : pairs_of(to)) expected += std::max(0, count - before[pair]);
    ASSERT_EQ(count_moves(from, to), expected);
    const Placement aligned = align_slots(from, to);
    ASSERT_EQ(pairs_of(aligned), pairs_of(to));
    int changed = 0;
    for (size_t slot = 0; slot < aligned.slot_to_expert.size(); ++slot) {
      changed += aligned.slot_to_expert[slot] != from.slot_to_expert[slot];
    }
    ASSERT_EQ(changed, expected);
  }
}

}  // namespace
}  // namespace wideep::balance
