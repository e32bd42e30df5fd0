// SPDX-License-Identifier: Apache-2.0
//
// Iterations of two ranks are made by hand, and the files are read back. Held is which iterations
// of a range they have: of a run that ends early, of one whose members change, of one that another
// process has recorded before; and where slots lie in them: with borrowed ones, with groups that
// each have slots of their own, and with ranks that come and go. A failure is a load that no tokens
// have made.
#include "run/statistics_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "recordings/statistics_reader.h"

namespace wideep::run {
namespace {

using recordings::ExpertStatistics;
using testing::ElementsAre;
using testing::HasSubstr;

// Two ranks with two layers (1 and 4) of three experts.
ExpertRanks two_ranks() {
  return {.stage_size = 2,
          .ranks = {{{1, 4}, 0}, {{1, 4}, 1}},
          .dispatch_ranks = 2,
          .statistics = {.num_experts = 3, .top_k = 2, .ep_size = 2}};
}

// Rank r counts {i, r, layer} in iteration i.
Iteration iteration(int64_t number, std::vector<int> members = {}) {
  Iteration all{.ranks = {}, .members = std::move(members)};
  const int count = all.members.empty() ? 2 : static_cast<int>(all.members.size());
  for (int index = 0; index < count; ++index) {
    engine::IterationRecord& record = all.ranks.emplace_back();
    record.iteration = number;
    for (const int layer : {1, 4}) {
      engine::LayerRecord& each = record.layers.emplace_back();
      each.counts = {static_cast<int32_t>(number), all.rank(static_cast<size_t>(index)), layer};
      each.sent = {1, 1};
    }
  }
  return all;
}

class RecordedRange : public testing::Test {
 protected:
  // Iterations 0 … count − 1, then the end.
  void record(IterationRange range, int64_t count) {
    StatisticsRecorder recorder({directory_.path(), range}, two_ranks());
    for (int64_t i = 0; i < count; ++i) ASSERT_TRUE(recorder.add(iteration(i)).ok());
    ASSERT_TRUE(recorder.finish().ok());
    missing_ = recorder.missing("the run had only");
  }
  ExpertStatistics statistics(const std::string& folder = "") const {
    const auto read = recordings::read_statistics_directory(directory_.path() + folder);
    EXPECT_TRUE(read.ok()) << read.status().message();
    return read.ok() ? *read : ExpertStatistics();
  }

  base::ScratchDirectory directory_;
  std::string missing_;
};

TEST_F(RecordedRange, RecordsTheRangeAndNothingElse) {
  record({2, 5}, 9);
  const ExpertStatistics found = statistics();
  EXPECT_EQ(found.iter_start, 2);
  EXPECT_EQ(found.iter_stop, 5);
  EXPECT_THAT(found.layers, ElementsAre(1, 4));
  EXPECT_THAT(found.row(1, 1, 1), ElementsAre(3, 1, 4));  // iteration 3, layer 4, rank 1
  EXPECT_EQ(missing_, "");
  EXPECT_FALSE(found.slots);
  EXPECT_EQ(directory_.num_files(), 3);  // no counts of slots: there is no load balancer
}

// A later failure of the run cannot lose them.
TEST_F(RecordedRange, IsWrittenWithItsLastIteration) {
  StatisticsRecorder recorder({directory_.path(), {0, 2}}, two_ranks());
  ASSERT_TRUE(recorder.add(iteration(0)).ok());
  EXPECT_EQ(directory_.num_files(), 0);
  ASSERT_TRUE(recorder.add(iteration(1)).ok());
  EXPECT_EQ(statistics().iter_stop, 2);
}

TEST_F(RecordedRange, ARunThatEndsInsideTheRangeHasItsTrueRange) {
  record({2, 100}, 6);
  const ExpertStatistics found = statistics();
  EXPECT_EQ(found.iter_start, 2);
  EXPECT_EQ(found.iter_stop, 6);
  EXPECT_EQ(missing_,
            "expert statistics of iterations 2-100: the run had only 6 iterations, 2-6 are "
            "recorded in " +
                directory_.path());
}

TEST_F(RecordedRange, NothingIsWrittenWhenTheRangeIsNeverReached) {
  record({50, 60}, 6);
  EXPECT_EQ(directory_.num_files(), 0);
  EXPECT_THAT(missing_, HasSubstr("50-60: the run had only 6 iterations, none is recorded"));
}

// Iteration 2 was lost with rank 1, which is back in 4.
TEST_F(RecordedRange, MembersThatChangeLeaveNoGap) {
  StatisticsRecorder recorder({directory_.path(), {1, 5}}, two_ranks());
  for (const Iteration& each : {iteration(0), iteration(1), iteration(3, {0}), iteration(4)}) {
    ASSERT_TRUE(recorder.add(each).ok());
  }
  const ExpertStatistics found = statistics();
  EXPECT_EQ(found.num_iterations(), 3);
  EXPECT_THAT(found.row(1, 0, 0), ElementsAre(3, 0, 1));
  EXPECT_THAT(found.row(1, 0, 1), ElementsAre(0, 0, 0));
  EXPECT_THAT(found.row(2, 0, 1), ElementsAre(4, 1, 1));
  EXPECT_THAT(*formats::read_file(directory_.path() + "/meta_info.json"),
              HasSubstr("\"recorded_iterations\": \"1,3-4\""));
  EXPECT_THAT(recorder.missing("the run had only"),
              HasSubstr("iterations 1-5: 3 of them are recorded in"));
}

TEST_F(RecordedRange, WhatAProcessThatHasDiedHasWrittenStays) {
  record({0, 2}, 2);
  const std::string before = *formats::read_file(directory_.path() + "/rank0.safetensors");
  StatisticsRecorder again({directory_.path(), {0, 20}}, two_ranks(), 7);
  EXPECT_TRUE(again.was_done_before());
  ASSERT_TRUE(again.add(iteration(7)).ok());
  ASSERT_TRUE(again.finish().ok());
  EXPECT_EQ(*formats::read_file(directory_.path() + "/rank0.safetensors"), before);
  EXPECT_EQ(again.missing("the run had only"), "");
}

// A process that dies before it has written all files leaves none that says they were: the next one
// records what is left of the range, instead of taking the part for the whole.
TEST_F(RecordedRange, HalfOfTheFilesAreNoRecording) {
  const std::string in_the_way = directory_.path() + "/rank1.safetensors";
  ASSERT_TRUE(std::filesystem::create_directory(in_the_way));
  StatisticsRecorder recorder({directory_.path(), {0, 2}}, two_ranks());
  ASSERT_TRUE(recorder.add(iteration(0)).ok());
  EXPECT_FALSE(recorder.add(iteration(1)).ok());
  EXPECT_TRUE(std::filesystem::exists(directory_.path() + "/rank0.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/meta_info.json"));
  std::filesystem::remove(in_the_way);
  StatisticsRecorder again({directory_.path(), {0, 9}}, two_ranks(), 7);
  EXPECT_FALSE(again.was_done_before());
  ASSERT_TRUE(again.add(iteration(7)).ok());
  ASSERT_TRUE(again.finish().ok());
  EXPECT_EQ(statistics().iter_start, 7);
}

// ---- slots ----

// One layer; each rank's counts of slots.
Iteration with_slots(int64_t number, std::vector<int> members,
                     const std::vector<std::vector<int32_t>>& slots) {
  Iteration all{.ranks = {}, .members = std::move(members)};
  for (const std::vector<int32_t>& each : slots) {
    engine::IterationRecord& record = all.ranks.emplace_back();
    record.iteration = number;
    engine::LayerRecord& layer = record.layers.emplace_back();
    layer.counts = {1, 1};
    layer.slot_counts = each;
  }
  return all;
}

ExpertRanks ranks_of(int count, int dispatch_ranks, int borrowed_slots = 0) {
  ExpertRanks ranks{.stage_size = count,
                    .ranks = {},
                    .dispatch_ranks = dispatch_ranks,
                    .borrowed_slots = borrowed_slots,
                    .statistics = {.num_experts = 2, .top_k = 1, .ep_size = count}};
  for (int rank = 0; rank < count; ++rank) ranks.ranks.push_back({{7}, rank});
  return ranks;
}

// Three ranks with an own slot and a borrowed one each; then ranks 0 and 2 with two own ones.
TEST_F(RecordedRange, SlotsKeepTheirNumbersWhenMembersChange) {
  StatisticsRecorder recorder({directory_.path(), {0, 2}}, ranks_of(3, 3, 1));
  ASSERT_TRUE(
      recorder.add(with_slots(0, {}, {{1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0, 0}, {9, 0, 0, 0, 0, 0}}))
          .ok());
  ASSERT_TRUE(recorder.add(with_slots(1, {0, 2}, {{1, 2, 3, 4, 5, 6}, {7, 0, 0, 0, 0, 8}})).ok());
  const ExpertStatistics found = statistics("/slots");
  EXPECT_EQ(found.slots, (recordings::SlotLayout{
                             .num_ranks = 3, .borrowed_per_rank = 1, .num_logical_experts = 2}));
  EXPECT_EQ(found.num_experts, 9);
  EXPECT_THAT(found.row(0, 0, 0), ElementsAre(1, 0, 2, 3, 0, 4, 5, 0, 6));
  EXPECT_THAT(found.row(0, 0, 2), ElementsAre(9, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(found.row(1, 0, 0), ElementsAre(1, 2, 3, 0, 0, 0, 4, 5, 6));
  EXPECT_THAT(found.row(1, 0, 1), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(found.row(1, 0, 2), ElementsAre(7, 0, 0, 0, 0, 0, 0, 0, 8));
}

// With context parallelism: two groups of two ranks, each with copies of all experts.
TEST_F(RecordedRange, GroupsThatDispatchApartHaveSlotsOfTheirOwn) {
  StatisticsRecorder recorder({directory_.path(), {0, 1}}, ranks_of(4, 2));
  ASSERT_TRUE(recorder.add(with_slots(0, {}, {{1, 2}, {3, 4}, {5, 6}, {7, 8}})).ok());
  const ExpertStatistics found = statistics("/slots");
  EXPECT_EQ(found.slots->num_ranks, 4);
  EXPECT_THAT(found.row(0, 0, 1), ElementsAre(3, 4, 0, 0));
  EXPECT_THAT(found.row(0, 0, 2), ElementsAre(0, 0, 5, 6));
  EXPECT_THAT(found.iteration_load(0, 0), ElementsAre(4, 6, 12, 14));
}

// Slices of an expert lie on two ranks, as one slot.
TEST_F(RecordedRange, SlicesOfAnExpertAreOneSlot) {
  ExpertRanks ranks = ranks_of(2, 2);
  ranks.num_slices = 2;
  StatisticsRecorder recorder({directory_.path(), {0, 1}}, ranks);
  ASSERT_TRUE(recorder.add(with_slots(0, {}, {{1, 2}, {3, 4}})).ok());
  const ExpertStatistics found = statistics("/slots");
  EXPECT_EQ(found.slots->num_ranks, 1);
  EXPECT_THAT(found.iteration_load(0, 0), ElementsAre(4, 6));
}

}  // namespace
}  // namespace wideep::run
