// SPDX-License-Identifier: Apache-2.0
//
// Iterations of three ranks are made by hand, and the dump is read back by the reader of the
// format. Held is which iterations count as members come, go and begin to record, that numbers
// leave no gap, and that a dump is whole or not there, also after a process that died in the middle
// of one. A failure is a load that no tokens have made, or a file that no tool reads.
#include "server/expert_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "recordings/statistics_reader.h"

namespace wideep::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Three ranks with one MoE layer of two experts; ranks that are told to record answer at once.
class RecordedRanks : public testing::Test {
 protected:
  RecordedRanks()
      : recorder_({.directory = directory_.path()},
                  {.stage_size = 3,
                   .ranks = {{{7}, 0}, {{7}, 1}, {{7}, 2}},
                   .statistics = {.num_experts = 2, .top_k = 1, .ep_size = 3}}) {
    recorder_.connect([this](bool records) { recorder_.ranks_switched(records); },
                      [this](std::function<void()> call) { posted_.set_value(std::move(call)); });
  }

  // counts: of each member; {}: it does not record. tokens: that a member without counts had.
  void iterate(int64_t number, std::vector<int> members, std::vector<std::vector<int32_t>> counts,
               int32_t tokens = 0) {
    run::Iteration iteration{.ranks = {}, .members = std::move(members)};
    for (std::vector<int32_t>& each : counts) {
      engine::IterationRecord& rank = iteration.ranks.emplace_back();
      rank.iteration = number;
      engine::LayerRecord& layer = rank.layers.emplace_back();
      rank.records_experts = !each.empty();
      layer.sent = {each.empty() ? tokens : each[0] + each[1], 0, 0};
      layer.counts = std::move(each);
    }
    recorder_.add(iteration);
  }

  recordings::ExpertStatistics dumped() {
    ExpertRecorder::Outcome outcome;
    recorder_.stop([](const auto&) {});
    recorder_.dump([&](const ExpertRecorder::Outcome& result) { outcome = result; });
    posted_.get_future().get()();
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
    meta_ = *formats::read_file(outcome.directory + "/meta_info.json");
    const auto statistics = recordings::read_statistics(outcome.directory);
    EXPECT_TRUE(statistics.ok()) << statistics.status().message();
    return statistics.ok() ? *statistics : recordings::ExpertStatistics();
  }

  base::ScratchDirectory directory_;
  std::promise<std::function<void()>> posted_;
  ExpertRecorder recorder_;
  std::string meta_;
};

TEST_F(RecordedRanks, ARankThatJoinsHasHadNoTokensBefore) {
  recorder_.start([](const auto&) {});
  iterate(145, {0, 1}, {{1, 2}, {3, 4}});
  iterate(146, {0, 1, 2}, {{5, 6}, {7, 8}, {}});  // it has not read yet that it must record
  iterate(147, {0, 1, 2}, {{1, 1}, {2, 2}, {3, 3}});
  const recordings::ExpertStatistics statistics = dumped();
  EXPECT_EQ(statistics.iter_start, 145);
  EXPECT_EQ(statistics.iter_stop, 148);
  EXPECT_EQ(statistics.ep_size, 3);
  EXPECT_THAT(statistics.counts, ElementsAre(1, 2, 3, 4, 0, 0, 5, 6, 7, 8, 0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_EQ(meta_,
            "{\"num_experts\": 2, \"num_experts_per_token\": 1, \"ep_size\": 3, "
            "\"counts\": \"expert\"}\n");
}

// Tokens that nobody has counted: the iteration is left out, and the rest can be read.
TEST_F(RecordedRanks, IterationsThatWereNotRecordedLeaveNoGap) {
  recorder_.start([](const auto&) {});
  iterate(10, {}, {{1, 0}, {1, 0}, {1, 0}});
  iterate(11, {}, {{2, 0}, {2, 0}, {2, 0}});
  iterate(12, {}, {{3, 0}, {3, 0}, {}}, 4);
  iterate(13, {}, {{}, {}, {}});  // none had tokens
  iterate(20, {0, 2}, {{5, 0}, {6, 0}});
  const recordings::ExpertStatistics statistics = dumped();
  EXPECT_EQ(statistics.iter_start, 10);
  EXPECT_EQ(statistics.iter_stop, 13);
  EXPECT_THAT(statistics.counts, ElementsAre(1, 0, 1, 0, 1, 0, 2, 0, 2, 0, 2, 0, 5, 0, 0, 0, 6, 0));
  EXPECT_THAT(meta_, HasSubstr("\"recorded_iterations\": \"10-11,20\""));
}

// Ranks begin one after the other: what comes before the last of them is not recorded as a whole.
TEST_F(RecordedRanks, RecordingBeginsWhenAllRanksRecord) {
  recorder_.connect([](bool) {}, [this](auto call) { posted_.set_value(std::move(call)); });
  recorder_.start([](const auto&) {});
  iterate(1, {}, {{1, 0}, {1, 0}, {}});
  recorder_.ranks_switched(true);
  iterate(2, {}, {{1, 0}, {1, 0}, {1, 0}});
  recorder_.connect([this](bool records) { recorder_.ranks_switched(records); },
                    [this](auto call) { posted_.set_value(std::move(call)); });
  EXPECT_EQ(dumped().iter_start, 2);
}

// An iteration's number may have grown beyond what the names of tensors can hold.
TEST_F(RecordedRanks, LargeNumbersAreLeftOutOfTheNames) {
  recorder_.start([](const auto&) {});
  iterate(int64_t{1} << 40, {}, {{1, 0}, {1, 0}, {1, 0}});
  EXPECT_EQ(dumped().iter_start, 0);
  EXPECT_THAT(meta_, HasSubstr("\"recorded_iterations\": \"1099511627776\""));
}

// As a process that died in the middle of a dump has left it.
TEST_F(RecordedRanks, ADumpIsWholeOrNotThere) {
  std::filesystem::create_directory(directory_.file("dump-1.unfinished"));
  ASSERT_TRUE(formats::write_file(directory_.file("dump-1.unfinished/0_0.safetensors"), "x").ok());
  recorder_.connect([this](bool records) { recorder_.ranks_switched(records); },
                    [this](auto call) { posted_.set_value(std::move(call)); });
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  recorder_.start([](const auto&) {});
  iterate(1, {}, {{1, 0}, {1, 0}, {1, 0}});
  EXPECT_EQ(dumped().iter_start, 1);
  EXPECT_TRUE(std::filesystem::exists(directory_.file("dump-1/meta_info.json")));
  EXPECT_FALSE(std::filesystem::exists(directory_.file("dump-1.unfinished")));
}

TEST_F(RecordedRanks, IsBusyUntilItsClientHasBeenTold) {
  recorder_.connect([](bool) {}, [this](auto call) { posted_.set_value(std::move(call)); });
  EXPECT_FALSE(recorder_.is_busy());
  recorder_.start([](const auto&) {});
  EXPECT_TRUE(recorder_.is_busy());
  recorder_.ranks_switched(true);
  EXPECT_FALSE(recorder_.is_busy());
  iterate(1, {}, {{1, 0}, {1, 0}, {1, 0}});
  recorder_.stop([](const auto&) {});
  EXPECT_TRUE(recorder_.is_busy());
  recorder_.ranks_switched(false);
  recorder_.dump([](const auto&) {});
  auto written = posted_.get_future().get();
  EXPECT_TRUE(recorder_.is_busy());
  written();
  EXPECT_FALSE(recorder_.is_busy());
}

}  // namespace
}  // namespace wideep::server
