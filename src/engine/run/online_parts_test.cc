// SPDX-License-Identifier: Apache-2.0
//
// Memory is counted in records of one expert and set to the sum that is needed, then to less.
// Forked ranks count dense weights once, those of a launcher each for itself. Totals are read while
// members change: bytes of a rank that is gone have another meaning then, and must not be added. A
// failure is a run that the system ends for want of memory, or moves that nobody made.
#include "run/online_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::run {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const weights::ExpertShape kExperts{kernels::WeightFormat::kBf16, 64, 64};

balance::ModelPlacement placement(int num_layers, int ranks, int layer_updates) {
  balance::ModelPlacement model{.num_slots = 8, .layer_updates_per_iter = layer_updates};
  for (int layer = 0; layer < num_layers; ++layer) {
    model.layers[layer] = balance::default_placement(8, ranks, 8).value();
  }
  return model;
}

std::string error_of(const balance::ModelPlacement& model) {
  const auto plan = plan_online_stage(
      kExperts, model, model.layers.empty() ? 1 : model.layers.begin()->second.ep_size, {});
  return plan.ok() ? "" : plan.status().message();
}

// Of two ranks.
Result<OnlineParts> made_parts(const balance::ModelPlacement& model) {
  return make_online_parts(plan_online_stage(kExperts, model, 2, {}).value());
}

TEST(OnlineParts, BalancingWithoutPossibleEffectIsRefused) {
  EXPECT_EQ(error_of(placement(3, 2, 3)), "");
  EXPECT_THAT(error_of(placement(3, 2, 4)), HasSubstr("at most the model's 3 MoE layers, found 4"));
  EXPECT_THAT(error_of(placement(3, 1, 1)), HasSubstr("nothing to balance"));
  EXPECT_THAT(error_of(placement(0, 1, 1)), HasSubstr("no MoE layer"));
  EXPECT_THAT(error_of(placement(online::kMaxLayers + 1, 2, 1)), HasSubstr("at most 192"));
}

TEST(OnlineParts, TooLittleMemoryIsAnErrorWithBothFigures) {
  std::vector<OnlineParts> stages(1);
  auto made = made_parts(placement(3, 2, 2));
  ASSERT_TRUE(made.ok()) << made.status().message();
  stages[0] = std::move(*made);
  const OnlineParts* parts = stages.data();
  const uint64_t record = kExperts.record_bytes();
  EXPECT_EQ(parts->pool->total_bytes(), 3 * 8 * record);
  EXPECT_EQ(parts->plan.pool_bytes(), 3 * 8 * record);
  EXPECT_EQ(parts->plan.spare_bytes_per_rank(), 2 * 4 * record);  // two layers' slots
  const std::vector<MemoryPlan> plan = {{.num_ranks = 2, .slots_per_rank = 3 * 4 * record}};
  const uint64_t needed = (3 * 8 + 2 * 3 * 4 + 2 * 2 * 4) * record;
  EXPECT_TRUE(check_online_memory(stages, plan, needed).ok());
  const Status status = check_online_memory(stages, plan, needed - record);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("1.5 MiB needed"), HasSubstr("host pool 576.0 KiB"),
                                      HasSubstr("1.5 MiB free"), HasSubstr("spare_slots")));
}

TEST(OnlineParts, StartedRanksShareNoWeights) {
  std::vector<OnlineParts> stages(1);
  auto made = made_parts(placement(3, 2, 2));
  ASSERT_TRUE(made.ok()) << made.status().message();
  stages[0] = std::move(*made);
  const uint64_t record = kExperts.record_bytes();
  const std::vector<MemoryPlan> plan = {{.num_ranks = 2,
                                         .dense_weights = 100 * record,
                                         .slots_per_rank = 3 * 4 * record,
                                         .symmetric_memory_per_rank = 7 * record}};
  const auto needed = [&](int ranks_here) {  // pool, slots, spares, weights, segments of both ranks
    return 3 * 8 * record + uint64_t(ranks_here) * (3 * 4 + 2 * 4 + 100) * record + 2 * 7 * record;
  };
  for (const int ranks_here : {1, 2}) {
    const std::vector<int> started = {ranks_here};
    EXPECT_TRUE(check_online_memory(stages, plan, needed(ranks_here), started).ok());
    EXPECT_FALSE(check_online_memory(stages, plan, needed(ranks_here) - 1, started).ok());
  }
  EXPECT_TRUE(check_online_memory(stages, plan, 0, std::vector<int>{0}).ok());
}

TEST(OnlineParts, CountersStartAtNothing) {
  auto made = made_parts(placement(3, 2, 1));
  ASSERT_TRUE(made.ok()) << made.status().message();
  std::vector<OnlineParts> stages(2);  // of two stages, the first without experts
  stages[1] = std::move(*made);
  const OnlineTotals totals = read_totals(stages);
  EXPECT_EQ(totals.moves, 0);
  EXPECT_EQ(totals.seconds_since_plan, -1.0);
}

// A group with other members counts from zero, and its totals say that they are of another one.
TEST(OnlineParts, TotalsAreOfOneGroup) {
  std::vector<OnlineParts> stages;
  for (int stage = 0; stage < 2; ++stage) {
    stages.push_back(std::move(made_parts(placement(3, 2, 1)).value()));
    stages.back().board->balancer().moves = 5;
  }
  const OnlineTotals before = read_totals(stages);
  EXPECT_EQ(before.moves, 10);
  for (const OnlineParts& stage : stages) stage.board->clear();
  const OnlineTotals after = read_totals(stages);
  EXPECT_EQ(after.moves, 0);
  EXPECT_NE(after.group, before.group);
  EXPECT_EQ(read_totals(stages).group, after.group);
}

// The process that reads does not reshape its board: what follows the counters of fewer ranks are
// layers.
TEST(OnlineParts, TotalsAreOfThePresentRanks) {
  std::vector<OnlineParts> stages;
  stages.push_back(std::move(made_parts(placement(3, 2, 1)).value()));
  online::UpdateBoard& board = *stages[0].board;
  online::BoardShape one = board.shape();
  board.updater(1).hash_failures = 7;  // of a rank that is not there any more
  EXPECT_EQ(read_totals(stages).hash_failures, 7);
  one.num_slots /= one.num_ranks;
  one.num_ranks = 1;
  board.clear();
  board.reshape(one);
  std::vector<int32_t> slots(static_cast<size_t>(one.num_slots), 9);
  board.post(0, slots, std::vector<double>(slots.size(), 0.5));
  EXPECT_EQ(read_totals(stages).hash_failures, 0);
}

}  // namespace
}  // namespace wideep::run
