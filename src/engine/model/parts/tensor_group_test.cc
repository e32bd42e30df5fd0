// SPDX-License-Identifier: Apache-2.0
//
// Ranks are threads on one to four nodes. They write their parts, meet, and read those of all, 200
// times, with the round in every value, so that a part which is old or not there yet shows. Heads
// are held against the keys and values that each needs, sizes of the LM head's group against
// TensorRT-LLM's rule, by hand. A failure is a race: answers that differ from run to run.
#include "model/parts/tensor_group.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>
#include <utility>

#include "model/lm_head_size.h"
#include "transport/rank_threads.h"

namespace wideep::model {
namespace {

TEST(PartOfHeads, RanksShareThemOut) {
  for (const auto& [size, heads, kv_heads] : {std::array{1, 8, 2},
                                              {2, 8, 2},
                                              {4, 8, 2},
                                              {8, 8, 2},
                                              {4, 16, 4},
                                              {8, 64, 1},
                                              {4, 12, 12}}) {
    int next = 0;
    for (int rank = 0; rank < size; ++rank) {
      const HeadRange part = part_of_heads(rank, size, heads, kv_heads);
      EXPECT_EQ(part.first, next);
      next += part.count;
      EXPECT_EQ(part.num_kv, std::max(kv_heads / size, 1));
      // Every head finds its own keys among those of the rank.
      const int group = part.count / part.num_kv;
      for (int head = 0; head < part.count; ++head) {
        EXPECT_EQ(part.first_kv + head / group, (part.first + head) / (heads / kv_heads))
            << size << " ranks, " << heads << " heads, " << kv_heads;
      }
    }
    EXPECT_EQ(next, heads);
  }
}

TEST(PanelsOfColumns, CoverThem) {
  const auto panels = [](int first, int count) {
    const Panels found = panels_of_columns(first, count);
    return std::pair(found.first, found.last);
  };
  EXPECT_EQ(panels(0, 16), std::pair(0, 1));
  EXPECT_EQ(panels(16, 17), std::pair(1, 3));
  EXPECT_EQ(panels(24, 24), std::pair(1, 3));  // two ranks compute a panel in the middle
}

// Ranks that are late by chance write their parts, meet, and read those of all.
void expect_parts_seen(int num_nodes) {
  constexpr int kRanks = 4, kRounds = 200, kOffset = 4096;
  ModelConfig config;
  config.hidden_size = 24;
  config.num_heads = config.head_dim = 4;
  config.dense_intermediate_size = 40;
  config.vocab_size = 10;
  const JointLayout layout(config, 7, 3);
  const auto statuses = transport::run_rank_threads(
      {.num_ranks = kRanks, .segment_bytes = kOffset + layout.bytes(), .num_nodes = num_nodes},
      [&](transport::Endpoint& endpoint) -> Status {
        TensorGroup group(endpoint, kOffset, layout);
        std::mt19937 rng(static_cast<uint32_t>(endpoint.rank()));
        for (int round = 0; round < kRounds; ++round) {
          // Two buffers in turn: a rank that writes the first one again has passed the barrier of
          // the second, so all ranks have read the first.
          const auto buffer = round % 2 == 0 ? JointBuffer::kInput : JointBuffer::kOutput;
          float* rows = group.joint<float>(buffer, 7 * 24);
          const ep::TokenRange own = group.tokens(7);
          for (int i = own.begin * 24; i < (own.begin + own.size) * 24; ++i) {
            rows[i] = static_cast<float>(round * 1000 + i);
          }
          if (rng() % 16 == 0) std::this_thread::yield();
          const Status met = group.meet(written_rows(rows, 24, own), {.what = "test"});
          if (!met.ok()) return met;
          for (int i = 0; i < 7 * 24; ++i) {
            if (rows[i] != static_cast<float>(round * 1000 + i)) return failed("not seen");
          }
        }
        return {};
      });
  for (const Status& status : statuses.value()) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(TensorGroup, EveryPartIsSeenAfterTheMeeting) {
  for (const int num_nodes : {1, 2, 3, 4}) expect_parts_seen(num_nodes);
}

// By columns, on another node.
TEST(TensorGroup, ColumnsOfAllAreSeenOnEveryNode) {
  constexpr int kRanks = 2, kRows = 3, kColumns = 40;
  ModelConfig config;
  config.hidden_size = kColumns;
  config.num_heads = config.head_dim = 4;
  config.vocab_size = 10;
  const JointLayout layout(config, kRows, 1);
  const auto statuses = transport::run_rank_threads(
      {.num_ranks = kRanks, .segment_bytes = layout.bytes(), .num_nodes = 2},
      [&](transport::Endpoint& endpoint) -> Status {
        TensorGroup group(endpoint, 0, layout);
        EXPECT_TRUE(group.is_spread());
        float* y = group.joint<float>(JointBuffer::kOutput, kRows * kColumns);
        const Panels own =
            group.panels(kernels::packed_shape(kernels::WeightFormat::kBf16, kColumns, 32));
        for (int i = 0; i < kRows * kColumns; ++i) {
          const int panel = i % kColumns / kernels::kPanelWidth;
          if (panel >= own.first && panel < own.last) y[i] = static_cast<float>(i);
        }
        const Status met =
            group.meet(written_columns(y, kColumns, sizeof(float), kRows, own), {.what = "test"});
        if (!met.ok()) return met;
        for (int i = 0; i < kRows * kColumns; ++i) EXPECT_EQ(y[i], static_cast<float>(i));
        return endpoint.barrier({.what = "the end"});
      });
  for (const Status& status : statuses.value()) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(TensorGroup, AloneItHasEverything) {
  TensorGroup group;
  EXPECT_TRUE(group.is_alone());
  EXPECT_EQ(group.tokens(7).size, 7);
  EXPECT_EQ(group.panels(kernels::packed_shape(kernels::WeightFormat::kBf16, 100, 32)).count(), 7);
  EXPECT_EQ(group.heads(8, 2).count, 8);
  EXPECT_TRUE(group.meet({}).ok());
}

// TensorRT-LLM's rule: 256 / tokens, up to a power of two, at most a node's ranks.
TEST(LmHeadSize, FollowsTheNumberOfTokens) {
  EXPECT_EQ(lm_head_size(1, 32, 8), 8);
  EXPECT_EQ(lm_head_size(32, 32, 4), 4);
  EXPECT_EQ(lm_head_size(32, 32, 32), 8);
  EXPECT_EQ(lm_head_size(64, 8, 8), 4);
  EXPECT_EQ(lm_head_size(100, 8, 8), 2);
  EXPECT_EQ(lm_head_size(86, 8, 8), 2);
  EXPECT_EQ(lm_head_size(85, 8, 8), 4);  // 3 becomes 4
  EXPECT_EQ(lm_head_size(256, 8, 8), 1);
  EXPECT_EQ(lm_head_size(300, 8, 8), 1);
  EXPECT_EQ(lm_head_size(1, 6, 6), 6);
  EXPECT_EQ(lm_head_size(70, 12, 6), 3);  // 4 divides 12, but would cross nodes of 6
  EXPECT_EQ(lm_head_size(86, 6, 3), 1);   // 2 too
  EXPECT_EQ(lm_head_size(1, 1, 1), 1);
}

}  // namespace
}  // namespace wideep::model
