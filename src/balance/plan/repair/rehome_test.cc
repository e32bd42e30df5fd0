// SPDX-License-Identifier: Apache-2.0
//
// Ranks die or lose memory at random. Every expert must be back, with as many forced moves as
// experts were lost, and the report must say what the slots show. What was in lost slots must have
// no influence. Most tests go through make_repairer, because forced moves and those of choice share
// one budget. A failure means that a group which has lost a rank cannot serve, or copies more
// weights than it must.
#include "plan/repair/rehome.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace wideep::balance {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Split kSplits[] = {Split::kEqual, Split::kWeighted};

std::vector<double> random_load(int experts, std::mt19937& random) {
  std::lognormal_distribution<double> tokens(5.0, 0.7);
  std::vector<double> load;
  for (int e = 0; e < experts; ++e) load.push_back(std::floor(tokens(random)));
  return load;
}

LayerPlan planned(const PlanShape& shape, std::span<const double> load, Split split) {
  LayerPlan plan;
  make_planner("wideep", shape, {.split = split}).value()->plan(load, &plan);
  return plan;
}

struct Repaired {
  LayerPlan plan;
  RepairReport report;
};

Repaired repaired(const PlanShape& shape, const RepairOptions& options,
                  std::span<const double> load, const LayerPlan& from) {
  Repaired result;
  result.report = make_repairer(shape, options).value()->repair(load, from, &result.plan);
  return result;
}

PlanShape full_shape(std::mt19937& random) {
  const int experts = 2 + static_cast<int>(random() % 40);
  const int ranks = 2 + static_cast<int>(random() % 9);
  const int per_rank =
      std::min(experts, (experts + ranks - 1) / ranks + static_cast<int>(random() % 4));
  return {.num_experts = experts, .ep_size = ranks, .num_slots = per_rank * ranks};
}

// Takes slots away at random, whole ranks or the last ones, while the experts fit.
PlanShape broken(PlanShape shape, std::mt19937& random) {
  shape.rank_slots.assign(static_cast<size_t>(shape.ep_size), shape.slots_per_rank());
  for (int i = 0; i < 3; ++i) {
    PlanShape next = shape;
    int& slots = next.rank_slots[random() % next.rank_slots.size()];
    slots = random() % 2 == 0 ? 0 : static_cast<int>(random() % static_cast<unsigned>(slots + 1));
    if (next.num_usable_slots() >= next.num_experts) shape = next;
  }
  return shape;
}

bool usable(const PlanShape& shape, int slot) {
  return slot % shape.slots_per_rank() < shape.usable_slots_of(slot / shape.slots_per_rank());
}

// The part of a placement that is left after ranks die or lose memory.
Placement kept(const PlanShape& shape, Placement placement) {
  for (int slot = 0; slot < shape.num_slots; ++slot) {
    if (!usable(shape, slot)) placement.slot_to_expert[static_cast<size_t>(slot)] = kUnusedSlot;
  }
  return placement;
}

int experts_missing(const Placement& placement) {
  std::set<int32_t> present(placement.slot_to_expert.begin(), placement.slot_to_expert.end());
  present.erase(kUnusedSlot);
  return placement.num_experts - static_cast<int>(present.size());
}

void check_repair(const PlanShape& shape, const Placement& from, const Repaired& to,
                  std::span<const double> load, int max_moves) {
  const Placement before = kept(shape, from), after = to.plan.placement;
  ASSERT_TRUE(check_placement(after).ok()) << check_placement(after).message();
  int changed = 0;
  std::vector<double> sums(load.size(), 0.0);
  for (int slot = 0; slot < shape.num_slots; ++slot) {
    const auto i = static_cast<size_t>(slot);
    const int32_t expert = after.slot_to_expert[i];
    ASSERT_EQ(expert != kUnusedSlot, usable(shape, slot)) << "slot " << slot;
    changed += expert != before.slot_to_expert[i];
    if (expert != kUnusedSlot) sums[static_cast<size_t>(expert)] += to.plan.shares[i];
  }
  for (double sum : sums) ASSERT_NEAR(sum, 1.0, 1e-11);
  ASSERT_EQ(to.report.forced_moves, experts_missing(before));
  ASSERT_EQ(to.report.moves, changed);
  ASSERT_LE(to.report.moves, std::max(max_moves, to.report.forced_moves));
  ASSERT_GE(to.report.moves, to.report.forced_moves);
  ASSERT_LE(to.report.imbalance_after, to.report.imbalance_resplit + 1e-9);
  ASSERT_NEAR(imbalance_ratio(after, load, to.plan.shares), to.report.imbalance_after, 1e-9);
}

TEST(Recovery, EveryExpertIsBackWithinTheBudgetOnRandomShapes) {
  std::mt19937 random(1);
  int with_forced = 0;
  for (int i = 0; i < 400; ++i) {
    const PlanShape shape = full_shape(random), rest = broken(shape, random);
    const std::vector<double> load = random_load(shape.num_experts, random);
    for (Split split : kSplits) {
      const LayerPlan plan = planned(shape, load, split);
      for (int max_moves : {0, 2, 1000}) {
        SCOPED_TRACE(testing::Message() << "case " << i << ", at most " << max_moves);
        const RepairOptions options{.split = split, .max_moves = max_moves};
        const Repaired result = repaired(rest, options, load, plan);
        ASSERT_NO_FATAL_FAILURE(check_repair(rest, plan.placement, result, load, max_moves));
        ASSERT_NEAR(result.report.imbalance_before,
                    imbalance_ratio(plan.placement, load, plan.shares), 1e-12);
        // The former experts of lost slots have no influence.
        const LayerPlan masked{kept(rest, plan.placement), {}};
        ASSERT_EQ(repaired(rest, options, load, masked).plan.placement, result.plan.placement);
        with_forced += result.report.forced_moves > 0;
      }
    }
  }
  EXPECT_GT(with_forced, 500);
}

TEST(Recovery, ALostRankCostsFarFewerMovesThanANewPlan) {
  std::mt19937 random(2);
  const PlanShape shape{.num_experts = 128, .ep_size = 16, .num_slots = 160};
  PlanShape rest = shape;
  rest.rank_slots.assign(16, 10);
  rest.rank_slots[5] = 0;
  for (Split split : kSplits) {
    double moves = 0, after = 0;
    for (int i = 0; i < 10; ++i) {
      const std::vector<double> load = random_load(128, random);
      const Repaired result =
          repaired(rest, {.split = split, .tolerance = 0.02}, load, planned(shape, load, split));
      moves += result.report.moves / 10.0;
      after += result.report.imbalance_after / 10.0;
    }
    EXPECT_LT(after, 0.021);
    EXPECT_LT(moves, split == Split::kEqual ? 45.0 : 20.0);  // of 150; a rank holds 10
    RecordProperty(split == Split::kEqual ? "moves_equal" : "moves_weighted", moves);
  }
}

TEST(Recovery, AReturnedRankGetsExpertsAgain) {
  std::mt19937 random(3);
  PlanShape shape{.num_experts = 64, .ep_size = 8, .num_slots = 80};
  PlanShape rest = shape;
  rest.rank_slots = {10, 10, 10, 0, 10, 10, 10, 10};
  const std::vector<double> load = random_load(64, random);
  for (Split split : kSplits) {
    const LayerPlan plan = planned(rest, load, split);
    const Repaired result = repaired(shape, {.split = split, .tolerance = 0.02}, load, plan);
    ASSERT_TRUE(check_placement(result.plan.placement).ok());
    EXPECT_EQ(result.report.forced_moves, 0);
    EXPECT_GT(result.report.imbalance_resplit, 0.1);  // 1/7 above the mean of 8
    EXPECT_LE(result.report.imbalance_after, 0.02);
    EXPECT_LE(result.report.moves, split == Split::kEqual ? 40 : 10);
  }
}

TEST(Recovery, RefusesRanksTooSmallForAllExperts) {
  const PlanShape shape{.num_experts = 4, .ep_size = 2, .num_slots = 6, .rank_slots = {3, 0}};
  EXPECT_THAT(make_repairer(shape, {}).status().message(),
              HasSubstr("3 usable slots on 1 live ranks cannot hold 4 experts"));
}

// Expert 3 is lost. Rank 2 is the coolest: there it drives out expert 0, or takes the free slot.
TEST(Rehomer, ReplacesTheReplicaThatCostsLeastBalance) {
  const PlanShape shape{.num_experts = 4, .ep_size = 3, .num_slots = 6};
  Placement placement{4, 3, {0, 1, 1, 2, 0, kUnusedSlot}};
  const std::vector<double> load = {10, 100, 30, 20};
  Placement full = placement;
  full.slot_to_expert[5] = 2;
  EXPECT_EQ(Rehomer(shape).run(load, &full), 1);
  EXPECT_THAT(full.slot_to_expert, ElementsAre(0, 1, 1, 2, 3, 2));
  EXPECT_EQ(Rehomer(shape).run(load, &placement), 1);
  EXPECT_THAT(placement.slot_to_expert, ElementsAre(0, 1, 1, 2, 0, 3));
}

TEST(Rehomer, ChangesNothingWithoutLostExperts) {
  Placement placement{2, 2, {0, 1, 1, kUnusedSlot}};
  const Placement before = placement;
  EXPECT_EQ(Rehomer({.num_experts = 2, .ep_size = 2, .num_slots = 4})
                .run(std::vector<double>{1, 2}, &placement),
            0);
  EXPECT_EQ(placement, before);
}

}  // namespace
}  // namespace wideep::balance
