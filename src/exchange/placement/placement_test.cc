// SPDX-License-Identifier: Apache-2.0
//
// Placements and their tables are worked out by hand; masked ranks are those of TensorRT-LLM's own
// test. Every small shape must get a valid default placement, in which each expert has a slot.
// Refused counts must name the number to set instead, as 288 slots for 256 experts on 36 ranks.
#include "wideep/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace wideep::balance {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Placement kSmall{4, 2, {1, 0, 2, 1, 2, 3}};

TEST(Placement, MapsSlotsToRanks) {
  EXPECT_EQ(kSmall.num_slots(), 6);
  EXPECT_EQ(kSmall.slots_per_rank(), 3);
  EXPECT_EQ(kSmall.rank_of_slot(2), 0);
  EXPECT_EQ(kSmall.rank_of_slot(3), 1);
  EXPECT_THAT(kSmall.experts_of_rank(0), ElementsAre(1, 0, 2));
  EXPECT_THAT(kSmall.experts_of_rank(1), ElementsAre(1, 2, 3));
}

TEST(RoutingTable, ListsSlotsOfEachExpertAscending) {
  const RoutingTable table = make_routing_table(kSmall);
  EXPECT_EQ(table.num_experts(), 4);
  EXPECT_THAT(table.replica_start, ElementsAre(0, 1, 3, 5, 6));
  EXPECT_THAT(table.slot_ids, ElementsAre(1, 0, 3, 2, 4, 5));
  EXPECT_THAT(table.replicas(1), ElementsAre(0, 3));
  EXPECT_EQ(table.num_replicas(2), 2);
}

TEST(RoutingTable, AllowsTwoReplicasOnOneRank) {
  const Placement placement{2, 2, {1, 1, 0, 1}};
  ASSERT_TRUE(check_placement(placement).ok());
  EXPECT_THAT(make_routing_table(placement).replicas(1), ElementsAre(0, 1, 3));
}

TEST(CheckPlacement, NamesTheBadSlot) {
  const Status status = check_placement({4, 2, {0, 1, 2, 4}});
  EXPECT_EQ(status.code(), StatusCode::kInvalidInput);
  EXPECT_EQ(status.message(),
            "slot 3: expected an expert id from 0 to 3, or -1 for an unused slot, found 4");
  EXPECT_THAT(check_placement({4, 2, {0, 1, -2, 3}}).message(), HasSubstr("slot 2"));
}

TEST(CheckPlacement, NamesTheExpertWithoutSlot) {
  EXPECT_THAT(check_placement({4, 2, {0, 1, 3, 3}}).message(), HasSubstr("expert 2 has no slot"));
  EXPECT_THAT(check_placement({4, 2, {0, 1, -1, 3}}).message(), HasSubstr("expert 2 has no slot"));
}

// TRT's unit test of reconfigureMaskOnly.
TEST(MaskRanks, LeavesTheOtherReplicas) {
  const Placement placement{4, 4, {0, 1, 0, 2, 1, 3, 2, 3}};
  const Result<Placement> masked = mask_ranks(placement, std::vector{2});
  ASSERT_TRUE(masked.ok());
  EXPECT_THAT(masked->slot_to_expert, ElementsAre(0, 1, 0, 2, -1, -1, 2, 3));
  EXPECT_TRUE(check_placement(*masked).ok());
  const RoutingTable table = make_routing_table(*masked);
  EXPECT_THAT(table.replica_start, ElementsAre(0, 2, 3, 5, 6));
  EXPECT_THAT(table.slot_ids, ElementsAre(0, 2, 1, 3, 6, 7));
  EXPECT_EQ(*mask_ranks(*masked, std::vector{2}), *masked);
}

TEST(MaskRanks, RefusesToLoseAnExpert) {
  const Placement placement{4, 4, {0, 1, 0, 2, 1, 3, 2, 3}};
  EXPECT_THAT(mask_ranks(placement, std::vector{2, 3}).status().message(),
              HasSubstr("without the dead ranks: expert 3 has no slot"));
  EXPECT_THAT(mask_ranks(placement, std::vector{4}).status().message(),
              HasSubstr("expected ranks from 0 to 3, found 4"));
  EXPECT_FALSE(mask_ranks(placement, std::vector{-1}).ok());
}

TEST(CheckSlotCounts, NamesTheNumberToChange) {
  EXPECT_TRUE(check_slot_counts(256, 36, 288).ok());
  EXPECT_THAT(check_slot_counts(256, 36, 290).message(), HasSubstr("set num_slots to 324"));
  EXPECT_THAT(check_slot_counts(256, 32, 255).message(), HasSubstr("set num_slots to 256"));
  EXPECT_THAT(check_slot_counts(256, 36, 0).message(), HasSubstr("set num_slots to 288"));
  EXPECT_THAT(check_slot_counts(4, 16, 8).message(), HasSubstr("16 ranks cannot share 8 slots"));
  EXPECT_FALSE(check_slot_counts(0, 1, 1).ok());
  EXPECT_TRUE(check_slot_counts(256, 32, kMaxSlots).ok());
  EXPECT_THAT(check_slot_counts(256, 32, 1'000'000'000).message(),
              HasSubstr("num_slots: expected at most 1048576, found 1000000000"));
  EXPECT_FALSE(check_slot_counts(4, 0, 4).ok());
}

TEST(LinearPlacement, PutsExpertOnItsOwnSlot) {
  const Result<Placement> placement = linear_placement(6, 3);
  ASSERT_TRUE(placement.ok());
  EXPECT_THAT(placement->slot_to_expert, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(placement->rank_of_slot(5), 2);
}

TEST(LinearPlacement, RefusesUnequalRanksAndSuggestsSlots) {
  const Result<Placement> placement = linear_placement(256, 36);
  ASSERT_FALSE(placement.ok());
  EXPECT_THAT(placement.status().message(), HasSubstr("num_slots: 288"));
  EXPECT_TRUE(default_placement(256, 36, 288).ok());
}

// Rank r begins at expert r·E/R: [0 1 2] [2 3 4] [4 5 6] [6 7 0].
TEST(DefaultPlacement, StartsEachRankAtItsOwnExperts) {
  const Result<Placement> placement = default_placement(8, 4, 12);
  ASSERT_TRUE(placement.ok());
  EXPECT_THAT(placement->slot_to_expert, ElementsAre(0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 0));
}

TEST(DefaultPlacement, IsValidForEveryShape) {
  for (int num_experts = 1; num_experts <= 12; ++num_experts) {
    for (int ep_size = 1; ep_size <= 12; ++ep_size) {
      for (int num_slots = ep_size; num_slots <= 24; num_slots += ep_size) {
        if (num_slots < num_experts) continue;
        const Result<Placement> placement = default_placement(num_experts, ep_size, num_slots);
        ASSERT_TRUE(placement.ok());
        EXPECT_TRUE(check_placement(*placement).ok())
            << num_experts << " experts, " << ep_size << " ranks, " << num_slots << " slots";
      }
    }
  }
}

}  // namespace
}  // namespace wideep::balance
