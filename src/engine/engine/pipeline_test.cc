// SPDX-License-Identifier: Apache-2.0
//
// Rows and tokens between stages that are threads, without a model: what every rank sends follows
// from the micro-batch's number, so that each stage knows what it should have received.
#include "engine/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/try.h"
#include "transport/rank_threads.h"

namespace wideep::engine {
namespace {

using testing::HasSubstr;

constexpr int kHidden = 6;
constexpr size_t kOffset = 4096;  // of the buffers, behind something else

PipelineLayout layout_of(int stages) {
  return {.num_stages = stages,
          .micro_batches = stages,
          .max_tokens = 5,
          .max_words = 3,
          .hidden = kHidden};
}

int tokens_of(int64_t n) { return static_cast<int>(n * 7 % 6); }  // also none
int sampled_of(int64_t n) { return static_cast<int>(n * 5 % 4); }
float value_of(int64_t n, int stage, int i) {
  return static_cast<float>(n * 1000 + stage * 100 + i);
}

// One stage's side of a micro-batch, as the engine has it.
class Stage {
 public:
  Stage(transport::Endpoint& world, const PipelineLayout& layout)
      : stage_(world.rank()), pipeline_(world, all_ranks(layout.num_stages), layout, kOffset) {}

  Status run(int64_t num_micro_batches) {
    const int64_t first = begun_, end = first + num_micro_batches;
    for (; begun_ <= end; ++begun_) {  // the last one has the end flag
      if (begun_ - taken_in_ == pipeline_.micro_batches()) WIDEEP_TRY(take_in());
      WIDEEP_TRY(pass(begun_, begun_ == end));
    }
    while (taken_in_ < begun_) WIDEEP_TRY(take_in());
    return {};
  }

 private:
  static std::vector<int> all_ranks(int stages) {
    std::vector<int> ranks;
    for (int stage = 0; stage < stages; ++stage) ranks.push_back(stage);
    return ranks;
  }

  Status pass(int64_t n, bool ends) {
    const int tokens = ends ? 0 : tokens_of(n);
    if (!pipeline_.is_first()) WIDEEP_TRY(check_rows(n, tokens, ends));
    if (rng_() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng_() % 300));
    if (!pipeline_.is_last()) {
      float* room = pipeline_.next_rows();
      for (int i = 0; i < tokens * kHidden; ++i) room[i] = value_of(n, stage_, i);
      pipeline_.send(tokens, ends, static_cast<uint64_t>(n) + 7);
      return {};
    }
    std::vector<int32_t> sampled(ends ? 0 : sampled_of(n));
    for (size_t i = 0; i < sampled.size(); ++i) sampled[i] = static_cast<int32_t>(n * 10 + i);
    pipeline_.send_tokens(sampled);
    return {};
  }

  Status check_rows(int64_t n, int tokens, bool ends) {
    WIDEEP_TRY_ASSIGN(const Pipeline::Received found, pipeline_.receive(n));
    if (found.num_tokens != tokens || found.ends != ends) return failed("another micro-batch");
    if (found.num_commands != static_cast<uint64_t>(n) + 7) return failed("other commands");
    for (int i = 0; i < tokens * kHidden; ++i) {
      if (found.rows[i] != value_of(n, stage_ - 1, i)) return failed("rows of another micro-batch");
    }
    return {};
  }

  Status take_in() {
    const int64_t n = taken_in_++;
    if (pipeline_.is_last()) return {};
    WIDEEP_TRY_ASSIGN(const auto sampled, pipeline_.receive_tokens(n));
    for (size_t i = 0; i < sampled.size(); ++i) {
      if (sampled[i] != static_cast<int32_t>(n * 10 + i)) return failed("other tokens");
    }
    return {};
  }

  int stage_;
  Pipeline pipeline_;
  std::mt19937 rng_{static_cast<uint32_t>(stage_)};
  int64_t begun_ = 0, taken_in_ = 0;
};

struct Case {
  int stages;
  int nodes;
};

TEST(Pipeline, RowsAndTokensArriveWholeAndInOrder) {
  for (const Case c : {Case{2, 1}, {3, 1}, {5, 1}, {2, 2}, {3, 3}, {4, 2}}) {
    SCOPED_TRACE(testing::Message() << c.stages << " stages on " << c.nodes << " nodes");
    const PipelineLayout layout = layout_of(c.stages);
    const auto statuses = transport::run_rank_threads(
        {.num_ranks = c.stages, .segment_bytes = kOffset + layout.bytes(), .num_nodes = c.nodes},
        [&](transport::Endpoint& world) -> Status {
          Stage stage(world, layout);
          for (const int64_t micro_batches : {40, 0, 1, 2, 60}) {  // run after run
            WIDEEP_TRY(stage.run(micro_batches));
          }
          return Status();
        });
    ASSERT_TRUE(statuses.ok());
    for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Pipeline, ErrorsOfOtherStagesNameTheSilentOne) {
  const PipelineLayout layout = layout_of(3);
  const transport::Fault silent{
      .rank = 1, .kind = transport::Fault::Kind::kSilence, .after_raises = 4};
  const auto statuses = transport::run_rank_threads(
      {.num_ranks = 3,
       .segment_bytes = kOffset + layout.bytes(),
       .timeout = std::chrono::milliseconds(100),
       .faults = {silent}},
      [&](transport::Endpoint& world) { return Stage(world, layout).run(100); });
  ASSERT_TRUE(statuses.ok());
  for (const Status& status : *statuses) {
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(status.message(), HasSubstr("of the"));
    EXPECT_THAT(status.message(), HasSubstr("stage"));
  }
}

TEST(Pipeline, OneStageNeedsNoMemory) {
  EXPECT_EQ(layout_of(1).bytes(), 0u);
  EXPECT_GT(layout_of(2).bytes(), 2u * 5 * kHidden * sizeof(float));
  const Pipeline alone;
  EXPECT_TRUE(alone.is_first() && alone.is_last());
}

}  // namespace
}  // namespace wideep::engine
