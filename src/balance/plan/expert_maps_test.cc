// SPDX-License-Identifier: Apache-2.0
//
// Consistent maps are broken in one place per test: the fault found must be that one alone, with
// the text that its reader needs. Then maps are derived from 500 random placements; they have no
// fault, and have one after a change of any of four maps. A fault that is missed is wrong text, for
// tokens get the weights of another expert; one that is not there sends a user to look for a bug in
// a sound engine.
#include "wideep/expert_maps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace wideep::balance {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Four experts in six slots of three ranks: experts 1 and 3 have two replicas.
ExpertMaps good_maps() {
  return {.num_experts = 4,
          .ep_size = 3,
          .slot_to_expert = {0, 1, 2, 3, 1, 3},
          .expert_to_slots = {{0, -1}, {1, 4}, {2, -1}, {3, 5}},
          .replicas = {1, 2, 1, 2},
          .chosen_slot = {0, 4, 2, 3},
          .tokens_of_slot = {7, 4, 0, 5, 6, 1},
          .tokens_of_expert = {7, 10, 0, 6}};
}

std::vector<MapFaultKind> kinds(const std::vector<MapFault>& faults) {
  std::vector<MapFaultKind> found;
  for (const MapFault& fault : faults) found.push_back(fault.kind);
  return found;
}

// The only fault of the maps.
MapFault only_fault(const ExpertMaps& maps) {
  const std::vector<MapFault> faults = check_maps(maps);
  EXPECT_EQ(faults.size(), 1u);
  return faults.empty() ? MapFault{MapFaultKind::kLength, 0, ""} : faults.front();
}

TEST(ExpertMaps, GoodMapsHaveNoFault) {
  EXPECT_THAT(check_maps(good_maps()), IsEmpty());
  ExpertMaps bare = {.num_experts = 4, .slot_to_expert = {0, 1, 2, 3, 1, 3}};
  EXPECT_THAT(check_maps(bare), IsEmpty());
  bare.slot_to_expert[5] = -1;  // a slot of a dead rank
  EXPECT_THAT(check_maps(bare), IsEmpty());
}

// One stray id, taken for the last expert's, asks for no memory.
TEST(ExpertMaps, FarMoreExpertsThanSlots) {
  const ExpertMaps maps = {.num_experts = 2'000'000'001, .slot_to_expert = {0, 1, 2'000'000'000}};
  const MapFault fault = only_fault(maps);
  EXPECT_EQ(fault.kind, MapFaultKind::kLength);
  EXPECT_EQ(fault.text, "expected at least 2000000001 slots, one for each expert, found 3");
  EXPECT_EQ(only_fault({.num_experts = -1, .slot_to_expert = {0}}).text,
            "expected at least 1 expert, found -1");
}

TEST(ExpertMaps, MissingReplica) {
  ExpertMaps maps = good_maps();
  maps.expert_to_slots[3] = {3, -1};
  const MapFault fault = only_fault(maps);
  EXPECT_EQ(fault.kind, MapFaultKind::kMissingReplica);
  EXPECT_EQ(fault.text,
            "expert 3: slot 5 holds it, logical_to_physical lists 3: a replica is missing and gets "
            "no tokens");
}

TEST(ExpertMaps, StaleMap) {
  ExpertMaps maps = good_maps();
  // The placement has changed and the inverse has not: experts 1 and 3 have exchanged slots.
  maps.slot_to_expert = {0, 1, 2, 3, 3, 1};
  maps.chosen_slot = {};
  maps.tokens_of_slot = {};
  const std::vector<MapFault> faults = check_maps(maps);
  ASSERT_EQ(kinds(faults), (std::vector{MapFaultKind::kStale, MapFaultKind::kMissingReplica}));
  EXPECT_EQ(faults[0].number, 2);
  EXPECT_EQ(faults[0].text,
            "expert 1: logical_to_physical lists slot 4, which holds expert 3: one of the maps is "
            "stale, and tokens get the weights of another expert");
}

TEST(ExpertMaps, StaleDispatchMap) {
  ExpertMaps maps = good_maps();
  maps.chosen_slot[2] = 3;
  const MapFault fault = only_fault(maps);
  EXPECT_EQ(fault.kind, MapFaultKind::kStale);
  EXPECT_THAT(fault.text, HasSubstr("the dispatch map uses slot 3, which holds expert 3"));
}

TEST(ExpertMaps, CountsThatDoNotSum) {
  ExpertMaps maps = good_maps();
  maps.replicas = {1, 2, 1, 3};
  const MapFault fault = only_fault(maps);
  EXPECT_EQ(fault.kind, MapFaultKind::kCount);
  EXPECT_EQ(
      fault.text,
      "expert 3: the replica count is 3, the slots that hold it are 2 (counts sum to 7, slots "
      "in use are 6)");
}

TEST(ExpertMaps, TokensOfAnotherMap) {
  ExpertMaps maps = good_maps();
  std::swap(maps.tokens_of_slot[0], maps.tokens_of_slot[3]);
  const MapFault fault = only_fault(maps);
  EXPECT_EQ(fault.kind, MapFaultKind::kTokens);
  EXPECT_EQ(fault.number, 2);
  EXPECT_THAT(fault.text, HasSubstr("expert 0: the router chose it for 7 tokens, its slots 0 "
                                    "received 5 (of 23 and 23 in all)"));
}

TEST(ExpertMaps, TokensDispatchedByExpertIds) {
  ExpertMaps maps = good_maps();
  maps.slot_to_expert = {3, 1, 2, 0, 1, 3};
  maps.expert_to_slots = {};
  maps.chosen_slot = {};
  maps.tokens_of_slot = {7, 10, 0, 6, 0, 0};
  EXPECT_EQ(only_fault(maps).kind, MapFaultKind::kTokensById);
  // In order, experts are in the slots of their numbers: no fault.
  maps.slot_to_expert = {0, 1, 2, 3, 1, 3};
  EXPECT_THAT(check_maps(maps), IsEmpty());
}

TEST(ExpertMaps, ImpossibleIds) {
  ExpertMaps maps = {.num_experts = 4, .slot_to_expert = {0, 1, 2, 4, -2, 3}};
  MapFault fault = only_fault(maps);
  EXPECT_EQ(fault.kind, MapFaultKind::kNoSuchExpert);
  EXPECT_EQ(fault.number, 2);
  EXPECT_EQ(fault.text, "slot 3: expected an expert from 0 to 3, or -1 (not in use), found 4");

  maps = good_maps();
  maps.expert_to_slots[1] = {1, 4, 6};
  fault = only_fault(maps);
  EXPECT_EQ(fault.kind, MapFaultKind::kNoSuchSlot);
  EXPECT_THAT(fault.text, HasSubstr("slot 6, expected one from 0 to 5"));

  maps = good_maps();
  maps.expert_to_slots[1] = {1, 4, 4};
  EXPECT_EQ(only_fault(maps).kind, MapFaultKind::kListedTwice);
}

TEST(ExpertMaps, ExpertWithoutSlot) {
  const MapFault fault = only_fault({.num_experts = 4, .slot_to_expert = {0, 1, 2, 0, 1, 2}});
  EXPECT_EQ(fault.kind, MapFaultKind::kExpertWithout);
  EXPECT_THAT(fault.text, HasSubstr("expert 3: no slot holds it"));
}

TEST(ExpertMaps, LengthsComeFirst) {
  ExpertMaps maps = good_maps();
  maps.replicas.pop_back();
  maps.slot_to_expert[0] = 9;
  const MapFault fault = only_fault(maps);
  EXPECT_EQ(fault.kind, MapFaultKind::kLength);
  EXPECT_EQ(fault.text, "replica counts: expected 4 values, one for each of the experts, found 3");

  EXPECT_THAT(
      only_fault({.num_experts = 4, .ep_size = 4, .slot_to_expert = {0, 1, 2, 3, 1, 3}}).text,
      HasSubstr("multiple of the 4 ranks, found 6"));
  EXPECT_THAT(only_fault({.num_experts = 4, .slot_to_expert = {0, 1, 2}}).text,
              HasSubstr("at least 4 slots"));
}

TEST(ExpertMaps, ReplicasOnOneRankAreANote) {
  ExpertMaps maps = {.num_experts = 4, .ep_size = 3, .slot_to_expert = {0, 1, 2, 3, 1, 1}};
  MapFault fault = only_fault(maps);
  EXPECT_EQ(fault.kind, MapFaultKind::kSameRank);
  EXPECT_FALSE(fault.is_error());
  EXPECT_THAT(fault.text, HasSubstr("slots 4 and 5 are both on rank 2"));
  // Errors are first.
  maps.replicas = {1, 1, 1, 1};
  EXPECT_EQ(kinds(check_maps(maps)), (std::vector{MapFaultKind::kCount, MapFaultKind::kSameRank}));
}

TEST(ExpertMaps, RanksWithDifferentMaps) {
  const ExpertMaps maps = good_maps();
  EXPECT_EQ(compare_maps(maps, maps, "a.json"), std::nullopt);
  ExpertMaps other = maps;
  std::swap(other.slot_to_expert[1], other.slot_to_expert[2]);
  const auto fault = compare_maps(other, maps, "a.json");
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, MapFaultKind::kOtherMap);
  EXPECT_EQ(fault->number, 2);
  EXPECT_EQ(fault->text, "slot 1: 2 here, 1 in a.json: the ranks do not use the same map");
  other.slot_to_expert.push_back(0);
  EXPECT_EQ(compare_maps(other, maps, "a.json")->kind, MapFaultKind::kLength);
}

// Maps that are derived from a random placement agree; after any single change of one they do not.
TEST(ExpertMaps, RandomMapsWithOneChange) {
  std::mt19937 random(5);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int trial = 0; trial < 500; ++trial) {
    const int64_t experts = 2 + below(12), slots = experts + below(8);
    ExpertMaps maps{.num_experts = static_cast<int>(experts)};
    for (int64_t s = 0; s < slots; ++s) {
      maps.slot_to_expert.push_back(s < experts ? s : below(experts));
    }
    std::shuffle(maps.slot_to_expert.begin(), maps.slot_to_expert.end(), random);
    maps.expert_to_slots.resize(static_cast<size_t>(experts));
    maps.replicas.resize(static_cast<size_t>(experts));
    maps.tokens_of_expert.resize(static_cast<size_t>(experts));
    for (int64_t s = 0; s < slots; ++s) {
      const auto expert = static_cast<size_t>(maps.slot_to_expert[static_cast<size_t>(s)]);
      maps.expert_to_slots[expert].push_back(s);
      ++maps.replicas[expert];
      maps.tokens_of_slot.push_back(1 + below(100));
      maps.tokens_of_expert[expert] += maps.tokens_of_slot.back();
    }
    ASSERT_THAT(check_maps(maps), IsEmpty());

    const auto slot = static_cast<size_t>(below(slots));
    const auto expert = static_cast<size_t>(below(experts));
    switch (trial % 4) {
      case 0:
        maps.slot_to_expert[slot] = (maps.slot_to_expert[slot] + 1) % experts;
        break;
      case 1:
        maps.expert_to_slots[expert].pop_back();
        break;
      case 2:
        ++maps.replicas[expert];
        break;
      case 3:
        ++maps.tokens_of_slot[slot];
        break;
    }
    EXPECT_FALSE(check_maps(maps).empty()) << "trial " << trial;
  }
}

}  // namespace
}  // namespace wideep::balance
