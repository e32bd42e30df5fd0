// SPDX-License-Identifier: Apache-2.0
//
// Groups that lose and get ranks: by hand, with the slots or the number of copies that must come
// out, and 500 at random, which must be valid, the same in every call, and copy no more than was
// missing. A failure means that a group which has lost a rank copies more weights than it must
// before it serves again, or that its members disagree about who holds what.
#include "plan/regroup.h"

#include <gmock/gmock.h>

#include <random>
#include <set>

namespace wideep::balance {
namespace {

using testing::ElementsAre;
using Held = std::vector<std::vector<int32_t>>;

// Slots of the new placement whose expert the rank did not hold.
int count_copies(const Held& held, const Placement& placement) {
  int copies = 0;
  for (int rank = 0; rank < placement.ep_size; ++rank) {
    for (const int32_t expert : placement.experts_of_rank(rank)) {
      const auto& own = held[static_cast<size_t>(rank)];
      if (std::find(own.begin(), own.end(), expert) == own.end()) ++copies;
    }
  }
  return copies;
}

TEST(RegroupTest, AnExpertThatNobodyHasTakesTheSlotOfAReplica) {
  const Held held = {{0, 1, 2}, {2, 3, 0}};
  const std::vector<double> load = {1, 1, 1, 1, 1};
  const Placement placement = regroup(held, 5, 3, load);
  EXPECT_TRUE(check_placement(placement).ok());
  EXPECT_EQ(count_copies(held, placement), 1);
}

TEST(RegroupTest, KeepsEverythingWhereNothingIsMissing) {
  const Held held = {{3, 1}, {0, 2}};
  const std::vector<double> load = {5, 1, 1, 1};
  EXPECT_THAT(regroup(held, 4, 2, load).slot_to_expert, ElementsAre(3, 1, 0, 2));
}

TEST(RegroupTest, MoreSlotsArePaidByTheExpertsThatWereLost) {
  // Three of four ranks live, and need a slot more each.
  const Held held = {{0, 1}, {2, 3}, {4, 5}};
  const std::vector<double> load(8, 1.0);
  const int slots = slots_per_rank_for(3, 8, 2);
  EXPECT_EQ(slots, 3);
  const Placement placement = regroup(held, 8, slots, load);
  EXPECT_TRUE(check_placement(placement).ok());
  EXPECT_EQ(count_copies(held, placement), 3);  // 6, 7, and a replica in the slot that is left
}

TEST(RegroupTest, FewerSlotsGiveUpWhatOthersHave) {
  const Held held = {{0, 1, 6}, {2, 3, 7}, {4, 5, 0}, {6, 7}};
  const std::vector<double> load(8, 1.0);
  const Placement placement = regroup(held, 8, 2, load);
  EXPECT_TRUE(check_placement(placement).ok());
  EXPECT_EQ(count_copies(held, placement), 0);
}

TEST(RegroupTest, ARankWithoutExpertsGetsReplicasOfTheMostLoaded) {
  const Held held = {{0, 1, 2, 3}, {}};
  const std::vector<double> load = {1, 9, 1, 8};
  const Placement placement = regroup(held, 4, 4, load);
  EXPECT_THAT(placement.experts_of_rank(0), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(placement.experts_of_rank(1)[0], 1);
  EXPECT_EQ(placement.experts_of_rank(1)[1], 3);
}

// Random groups that lose and get ranks: always valid, and no more copies than experts lost, slots
// that were empty, and experts for which a rank has no slot any more: nobody else may have these.
TEST(RegroupTest, RandomGroups) {
  std::mt19937 random(7);
  const auto draw = [&](int max) { return std::uniform_int_distribution<int>(0, max)(random); };
  for (int round = 0; round < 500; ++round) {
    const int num_experts = 4 + draw(60), num_ranks = 1 + draw(11);
    const int usual = 1 + draw(num_experts / 2);
    Held held(static_cast<size_t>(num_ranks));
    std::set<int32_t> known;
    size_t empty = 0, without_slot = 0;
    const int slots = slots_per_rank_for(num_ranks, num_experts, usual);
    for (std::vector<int32_t>& own : held) {
      own.resize(static_cast<size_t>(draw(2 * slots)));
      size_t used = 0;
      std::set<int32_t> different;
      for (int32_t& expert : own) {
        expert = draw(5) == 0 ? kUnusedSlot : draw(num_experts - 1);
        used += expert == kUnusedSlot ? 0 : 1;
        if (expert != kUnusedSlot) different.insert(expert);
      }
      known.insert(different.begin(), different.end());
      without_slot += std::max(different.size(), static_cast<size_t>(slots)) - size_t(slots);
      empty += static_cast<size_t>(slots) - std::min(used, static_cast<size_t>(slots));
    }
    std::vector<double> load(static_cast<size_t>(num_experts));
    for (double& each : load) each = draw(100);
    const Placement placement = regroup(held, num_experts, slots, load);
    ASSERT_TRUE(check_placement(placement).ok()) << check_placement(placement).message();
    const size_t lost = static_cast<size_t>(num_experts) - known.size();
    ASSERT_LE(count_copies(held, placement), int(lost + empty + without_slot));
    ASSERT_EQ(placement, regroup(held, num_experts, slots, load));
  }
}

}  // namespace
}  // namespace wideep::balance
