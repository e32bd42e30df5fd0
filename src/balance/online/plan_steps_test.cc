// SPDX-License-Identifier: Apache-2.0
#include "online/plan_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace wideep::online {
namespace {

using balance::Placement;
using testing::ElementsAre;

TEST(PlanSteps, APlanThatFitsIsOneStep) {
  const Placement from{.num_experts = 3, .ep_size = 2, .slot_to_expert = {0, 1, 2, 0}};
  const std::vector<int32_t> to = {0, 2, 1, 0};
  EXPECT_THAT(changed_slots(from, to), ElementsAre(1, 1));
  EXPECT_EQ(next_step(from, to, std::vector<int>{1, 1}), to);
}

TEST(PlanSteps, AnExpertKeepsASlotAtEveryStep) {
  // Expert 1's only slot may go only together with its new one, for which rank 1 has no record.
  const Placement from{.num_experts = 3, .ep_size = 2, .slot_to_expert = {0, 1, 2, 0}};
  EXPECT_EQ(next_step(from, std::vector<int32_t>{0, 2, 1, 0}, std::vector<int>{1, 0}),
            from.slot_to_expert);
}

TEST(PlanSteps, AStepStaysWithinTheFreeRecords) {
  const Placement from{.num_experts = 2, .ep_size = 1, .slot_to_expert = {0, 1, 1, 1}};
  EXPECT_EQ(next_step(from, std::vector<int32_t>{0, 1, 0, 0}, std::vector<int>{1}),
            (std::vector<int32_t>{0, 1, 0, 1}));
}

// Any two placements, few records: every step is valid and within them, and steps end at the goal.
TEST(PlanSteps, RandomPlansAreReached) {
  std::mt19937 rng(3);
  for (int round = 0; round < 300; ++round) {
    const int ranks = 1 + static_cast<int>(rng() % 4), per_rank = 2 + static_cast<int>(rng() % 4);
    const int experts = 1 + static_cast<int>(rng() % static_cast<uint32_t>(ranks * per_rank));
    const auto random = [&] {
      std::vector<int32_t> slots(static_cast<size_t>(ranks * per_rank));
      for (size_t i = 0; i < slots.size(); ++i) {
        slots[i] = static_cast<int32_t>(i < size_t(experts) ? i : rng() % uint32_t(experts));
      }
      std::shuffle(slots.begin(), slots.end(), rng);
      return slots;
    };
    Placement now{.num_experts = experts, .ep_size = ranks, .slot_to_expert = random()};
    const std::vector<int32_t> goal = random();
    const std::vector<int> free(static_cast<size_t>(ranks), per_rank);
    const std::vector<int> few(static_cast<size_t>(ranks), 1 + static_cast<int>(rng() % 2));
    for (int steps = 0; now.slot_to_expert != goal; ++steps) {
      ASSERT_LT(steps, 100);
      Placement next = now;
      next.slot_to_expert = next_step(now, goal, few);
      ASSERT_TRUE(balance::check_placement(next).ok());
      const auto changed = changed_slots(now, next.slot_to_expert);
      ASSERT_LE(*std::max_element(changed.begin(), changed.end()), few[0]);
      if (next == now) next.slot_to_expert = next_step(now, goal, free);  // a cycle in one rank
      now = next;
    }
  }
}

}  // namespace
}  // namespace wideep::online
