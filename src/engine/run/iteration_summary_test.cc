// SPDX-License-Identifier: Apache-2.0
//
// Records have round times, so that loads, imbalance and critical path are sums by hand. They come
// out of order, late, and of ranks that have died or are no members yet. Each iteration must come
// out once, with those that were members, under a number that only grows. A failure is an imbalance
// of ranks that were not there, or a reader that waits for a number which never comes.
#include "run/iteration_summary.h"

#include <gtest/gtest.h>

namespace wideep::run {
namespace {

using engine::IterationRecord;

// Two ranks and one MoE layer; times in ms.
IterationRecord record(int64_t iteration, std::vector<int32_t> sent, int other_ms, int experts_ms,
                       int tail_ms) {
  IterationRecord result;
  result.iteration = iteration;
  result.prompt_tokens = 3;
  result.generated_tokens = 1;
  result.tail_cpu_ns = tail_ms * 1'000'000;
  result.layers.push_back({.other_cpu_ns = other_ms * 1'000'000,
                           .experts_cpu_ns = experts_ms * 1'000'000,
                           .sent = std::move(sent),
                           .counts = {1, 2}});
  return result;
}

// Ranks 2 … of a stage with these MoE layers, then those of the next stage.
ExpertRanks experts_of(const std::vector<std::vector<int>>& stages) {
  ExpertRanks experts{.stage_size = 2, .ranks = {}, .statistics = {}};
  for (const std::vector<int>& layers : stages) {
    for (int rank = 0; rank < experts.stage_size; ++rank) experts.ranks.push_back({layers, 0});
  }
  return experts;
}

// A run as the process that pulls its events sees it.
class PulledRun {
 public:
  explicit PulledRun(const std::vector<std::vector<int>>& stages)
      : experts_(experts_of(stages)),
        assembler_(static_cast<int>(experts_.ranks.size())),
        sums_(experts_) {}

  std::optional<IterationSummary> add(int rank, IterationRecord record) {
    const auto iteration = assembler_.add(rank, std::move(record));
    if (!iteration) return std::nullopt;
    log_.push_back(routing_log_entry(*iteration, experts_));
    const IterationSummary summary = summarize(*iteration, experts_);
    sums_.add(summary);
    return summary;
  }
  LoadTotals totals() const { return sums_.totals(); }
  const std::vector<recordings::RoutingLog::Iteration>& log() const { return log_; }

 private:
  ExpertRanks experts_;
  IterationAssembler assembler_;
  LoadSums sums_;
  std::vector<recordings::RoutingLog::Iteration> log_;
};

TEST(IterationSummary, SumsReceiversAndTakesTheSlowestRankOfEachStep) {
  PulledRun run(std::vector<std::vector<int>>{{5}});
  // Iteration 0: ranks receive 1 + 3 = 4 and 2 + 6 = 8, mean 6, ratio 1/3.
  run.add(0, record(0, {1, 2}, 10, 4, 1));
  run.add(1, record(0, {3, 6}, 20, 2, 3));
  // Iteration 1 arrives out of order: 5 and 5, ratio 0.
  run.add(1, record(1, {5, 0}, 1, 1, 1));
  run.add(0, record(1, {0, 5}, 2, 2, 2));
  const LoadTotals totals = run.totals();
  EXPECT_EQ(totals.num_iterations, 2);
  EXPECT_EQ(totals.prompt_tokens, 12);
  EXPECT_EQ(totals.generated_tokens, 4);
  EXPECT_EQ(totals.layers[0].layer, 5);
  EXPECT_EQ(totals.layers[0].received, (std::vector<int64_t>{9, 13}));
  EXPECT_NEAR(totals.layers[0].imbalance_ratio, (1.0 / 3 + 0) / 2, 1e-12);
  EXPECT_NEAR(totals.imbalance_ratio(), 1.0 / 6, 1e-12);
  EXPECT_NEAR(totals.critical_path_ms, (20 + 4 + 3) + (2 + 2 + 2), 1e-9);
  EXPECT_NEAR(totals.critical_path_experts_ms, 4 + 2, 1e-9);
  EXPECT_NEAR(totals.mean_rank_ms, (15 + 3 + 2) + (1.5 + 1.5 + 1.5), 1e-9);
  EXPECT_NEAR(totals.mean_experts_ms, 3 + 1.5, 1e-9);
  ASSERT_EQ(run.log().size(), 2u);
  EXPECT_EQ(run.log()[0].sent[0], (std::vector<std::vector<int32_t>>{{1, 2}, {3, 6}}));
  EXPECT_EQ(run.log()[0].critical_path_us[0], 4000.0);
}

TEST(IterationSummary, AnIterationIsCompleteWithTheLastRanksRecord) {
  PulledRun run(std::vector<std::vector<int>>{{5}});
  IterationRecord first = record(4, {1, 2}, 10, 4, 1), second = record(4, {3, 6}, 20, 2, 3);
  first.queue = {
      .running = 3, .waiting = 1, .scheduled = 2, .prompts = 1, .cache_pages = 4, .max_pages = 8};
  second.queue = first.queue;
  first.wall_ns = 5'000'000;
  second.wall_ns = 7'000'000;
  EXPECT_FALSE(run.add(0, first).has_value());
  const auto summary = run.add(1, second);
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->iteration, 4);
  EXPECT_EQ(summary->prompt_tokens, 6);
  EXPECT_EQ(summary->queue.running, 6);
  EXPECT_EQ(summary->queue.max_pages, 16);
  EXPECT_EQ(summary->wall_ms, 7.0);
  EXPECT_NEAR(summary->critical_path_ms, 20 + 4 + 3, 1e-9);
  EXPECT_NEAR(summary->imbalance_ratio(), 1.0 / 3, 1e-12);
}

TEST(IterationSummary, AnIterationThatOneRankNeverReportedDoesNotCount) {
  PulledRun run(std::vector<std::vector<int>>{{5}});
  run.add(0, record(0, {1, 1}, 1, 1, 1));
  EXPECT_EQ(run.totals().num_iterations, 0);
}

// Ranks 0 and 1 have layer 3, ranks 2 and 3 layers 5 and 6.
TEST(IterationSummary, StagesOfAPipelineReportTheirOwnLayers) {
  PulledRun run({{3}, {5, 6}});
  IterationRecord later = record(0, {2, 0}, 3, 4, 5);
  later.prompt_tokens = later.generated_tokens = 0;
  later.layers.push_back(later.layers[0]);
  run.add(2, later);
  run.add(0, record(0, {1, 2}, 10, 20, 30));
  run.add(3, later);
  EXPECT_EQ(run.totals().num_iterations, 0);
  const auto summary = run.add(1, record(0, {3, 6}, 10, 20, 30));
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->sent, (std::vector<std::vector<int64_t>>{{1 + 2 * 2, 2}, {3 + 2 * 2, 6}}));
  const LoadTotals totals = run.totals();
  EXPECT_EQ(totals.num_iterations, 1);
  EXPECT_EQ(totals.prompt_tokens, 6);
  ASSERT_EQ(totals.layers.size(), 3u);
  EXPECT_EQ(totals.layers[0].received, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(totals.layers[2].layer, 6);
  EXPECT_EQ(totals.layers[2].received, (std::vector<int64_t>{4, 0}));
  EXPECT_NEAR(totals.critical_path_ms, (10 + 20 + 30) + 2 * (3 + 4) + 5, 1e-9);
}

TEST(IterationRecord, SurvivesThePipe) {
  IterationRecord original = record(7, {1, -2, 3}, 4, 5, 6);
  original.queue = {
      .running = 1, .waiting = 2, .scheduled = 3, .prompts = 4, .cache_pages = 5, .max_pages = 6};
  EXPECT_EQ(engine::decode_iteration(engine::encode(original)), original);
}

// ---- members that change ----

TEST(IterationAssembler, DropsWhatTheOldMembersLeftIncomplete) {
  IterationAssembler assembler(3);
  EXPECT_FALSE(assembler.add(0, record(5, {1, 1, 1}, 1, 1, 1)));
  EXPECT_FALSE(assembler.add(2, record(5, {1, 1, 1}, 1, 1, 1)));
  // Rank 1 has died.
  const MembersChanged change{.epoch = 2, .ranks = {0, 2}};
  EXPECT_FALSE(assembler.change(2, change));
  EXPECT_FALSE(assembler.add(2, record(6, {2, 3}, 1, 1, 1)));  // faster than the other
  EXPECT_TRUE(assembler.change(0, change));
  const auto iteration = assembler.add(0, record(6, {4, 5}, 1, 1, 1));
  ASSERT_TRUE(iteration);
  EXPECT_EQ(iteration->members, (std::vector<int>{0, 2}));
  EXPECT_EQ(iteration->ranks.size(), 2u);
}

// A rank that died or was retired may have written more than was read of it so far.
TEST(IterationAssembler, LeavesOutWhatComesLateOfARankThatWasAMember) {
  IterationAssembler assembler(3);
  const MembersChanged change{.epoch = 2, .ranks = {0, 1}};
  EXPECT_FALSE(assembler.change(0, change));
  EXPECT_FALSE(assembler.add(2, record(5, {1, 1, 1}, 1, 1, 1)));  // still of the first epoch
  EXPECT_TRUE(assembler.change(1, change));
  EXPECT_FALSE(assembler.add(2, record(6, {1, 1, 1}, 1, 1, 1)));
  EXPECT_FALSE(assembler.add(0, record(6, {2, 3}, 1, 1, 1)));
  const auto iteration = assembler.add(1, record(6, {4, 5}, 1, 1, 1));
  ASSERT_TRUE(iteration);
  EXPECT_EQ(iteration->members, (std::vector<int>{0, 1}));
}

// Nor does a rank count that is to start later.
TEST(IterationAssembler, LeavesOutRanksThatAreNoMembers) {
  IterationAssembler assembler(3, 2);
  EXPECT_FALSE(assembler.add(2, record(5, {1, 1}, 1, 1, 1)));
  EXPECT_FALSE(assembler.add(0, record(5, {1, 1}, 1, 1, 1)));
  EXPECT_TRUE(assembler.add(1, record(5, {1, 1}, 1, 1, 1)));
}

// Who asks for what came after iteration 4711 would wait until the ranks have come there again.
TEST(IterationAssembler, CountsOnWhereRanksBeginAnew) {
  IterationAssembler assembler(2);
  const auto add = [&](int64_t iteration) {
    assembler.add(0, record(iteration, {1, 1}, 1, 1, 1));
    const auto whole = assembler.add(1, record(iteration, {1, 1}, 1, 1, 1));
    EXPECT_TRUE(whole && whole->ranks[0].iteration == whole->ranks[1].iteration);
    return whole ? whole->ranks[1].iteration : -1;
  };
  const auto change = [&](uint32_t epoch) {
    assembler.change(0, {.epoch = epoch, .ranks = {0, 1}});
    EXPECT_TRUE(assembler.change(1, {.epoch = epoch, .ranks = {0, 1}}));
  };
  EXPECT_EQ(add(0), 0);
  EXPECT_EQ(add(1), 1);
  change(2);
  EXPECT_EQ(add(2), 2);  // members that were there count on
  EXPECT_EQ(add(4), 4);
  change(3);
  EXPECT_EQ(add(0), 5);
  EXPECT_EQ(add(1), 6);
  EXPECT_EQ(assembler.number(1), 6);
  change(4);
  EXPECT_EQ(add(2), 7);
  change(5);
  EXPECT_EQ(add(0), 8);
  EXPECT_EQ(assembler.next(), 9);
}

// In a serving process where another one has died.
TEST(IterationAssembler, CountsOnAfterAnotherProcess) {
  for (const int64_t theirs : {0, 9, 12}) {
    IterationAssembler assembler(1, 1, 9);
    const auto first = assembler.add(0, record(theirs, {1}, 1, 1, 1));
    ASSERT_TRUE(first);
    EXPECT_EQ(first->ranks[0].iteration, std::max<int64_t>(theirs, 9));
  }
}

TEST(IterationSummary, CountsForTheRanksThatWereThere) {
  ExpertRanks experts{.stage_size = 3, .ranks = {}, .statistics = {}};
  for (int rank = 0; rank < 3; ++rank) experts.ranks.push_back({{1}, rank});
  const Iteration iteration{.ranks = {record(6, {2, 3}, 1, 1, 1), record(6, {4, 5}, 1, 1, 1)},
                            .members = {0, 2}};
  const IterationSummary summary = summarize(iteration, experts);
  EXPECT_EQ(summary.rank_load, (std::vector<int64_t>{6, 0, 8}));
  EXPECT_EQ(summary.received, (std::vector<std::vector<int64_t>>{{6, 0, 8}}));
  EXPECT_EQ(summary.sent, (std::vector<std::vector<int64_t>>{{2, 0, 3}, {0, 0, 0}, {4, 0, 5}}));
  EXPECT_NEAR(summary.imbalance_ratios[0], 8.0 / 7.0 - 1.0, 1e-9);  // of those two
}

TEST(IterationSummary, RoutingLogHasZerosForRanksThatWereNotThere) {
  ExpertRanks experts{
      .stage_size = 3, .ranks = {}, .statistics = {.num_experts = 2, .top_k = 1, .ep_size = 3}};
  for (int rank = 0; rank < 3; ++rank) experts.ranks.push_back({{1}, rank});
  const Iteration iteration{.ranks = {record(6, {2, 1}, 1, 1, 1), record(6, {0, 3}, 1, 1, 1)},
                            .members = {0, 2}};
  const auto entry = routing_log_entry(iteration, experts);
  using Matrix = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(entry.sent, (std::vector<Matrix>{{{2, 0, 1}, {0, 0, 0}, {0, 0, 3}}}));
  EXPECT_EQ(entry.counts, (std::vector<Matrix>{{{1, 2}, {0, 0}, {1, 2}}}));
}

}  // namespace
}  // namespace wideep::run
