// SPDX-License-Identifier: Apache-2.0
//
// Counts of the busiest rank are held against three others: dealing token by token in random cases,
// the engine's own scheduler, and the mean of 4,000 draws of sequences at random positions. A
// failure of the second means that predictions are of an engine that deals otherwise.
#include "advise/context_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "schedule/scheduler.h"

namespace wideep::advise {
namespace {

using model::StepShape;

// Token by token, as the header says.
std::vector<StepShape> dealt_slowly(const std::vector<DealtTokens>& sequences,
                                    const ContextDeal& deal) {
  std::vector<StepShape> shapes(static_cast<size_t>(deal.num_ranks));
  for (const DealtTokens& sequence : sequences) {
    std::vector<StepShape> before = shapes;
    for (int64_t i = 0; i < sequence.tokens; ++i) {
      const int64_t position = sequence.computed + i;
      const auto rank =
          static_cast<size_t>((sequence.first_rank + position / deal.turn) % deal.num_ranks);
      ++shapes[rank].num_tokens;
      shapes[rank].attended += position + 1;
      if (i + 1 == sequence.tokens) ++shapes[rank].num_logit_rows;
    }
    for (size_t rank = 0; rank < shapes.size(); ++rank) {
      if (shapes[rank].num_tokens > before[rank].num_tokens) {
        shapes[rank].cached += sequence.computed;
        shapes[rank].num_cached += sequence.computed > 0 ? 1 : 0;
      }
    }
  }
  return shapes;
}

TEST(DealtShapes, AreThoseOfEachToken) {
  std::mt19937 random(5);
  const auto draw = [&](int max) { return static_cast<int>(random() % (max + 1)); };
  for (int round = 0; round < 200; ++round) {
    const ContextDeal deal{.num_ranks = 1 + draw(4), .turn = 64 * (1 + draw(3))};
    std::vector<DealtTokens> sequences;
    for (int i = draw(5); i >= 0; --i) {
      sequences.push_back({.first_rank = draw(deal.num_ranks - 1),
                           .computed = draw(3) * draw(300),
                           .tokens = 1 + draw(2000)});
    }
    EXPECT_EQ(dealt_shapes(sequences, deal), dealt_slowly(sequences, deal));
  }
}

// The engine's own scheduler deals a prompt, as rank 0 … n − 1 of those that share it.
TEST(DealtShapes, AreTheEngines) {
  constexpr int kPrompt = 1500, kTokens = 2048;
  model::ModelConfig config;
  config.num_layers = 1;
  config.layers.resize(1);
  config.num_heads = config.num_kv_heads = 1;
  config.head_dim = 4;
  for (const int ranks : {2, 3, 4}) {
    const ContextDeal deal = context_deal(ranks, kTokens);
    const engine::SchedulerLimits limits{.max_batch_size = 4,
                                         .max_num_tokens = kTokens,
                                         .max_rank_tokens = deal.rank_tokens,
                                         .turn_pages = deal.turn / kernels::kPageTokens,
                                         .max_pages = 64};
    const std::vector<StepShape> dealt = dealt_shapes({{{.tokens = kPrompt}}}, deal);
    for (int rank = 0; rank < ranks; ++rank) {
      engine::ContextPlace place{.rank = rank, .size = ranks};
      place.caches.resize(static_cast<size_t>(ranks));
      engine::Scheduler scheduler({config, Dtype::kBf16}, limits, place);
      ASSERT_TRUE(
          scheduler
              .submit({.index = 0, .prompt = std::vector<int32_t>(kPrompt, 1), .max_tokens = 1})
              .ok());
      const model::Batch& batch = scheduler.schedule().batch;
      int64_t attended = 0;
      for (const int position : batch.positions) attended += position + 1;
      const StepShape& expected = dealt[static_cast<size_t>(rank)];
      EXPECT_EQ(batch.num_tokens(), expected.num_tokens);
      EXPECT_EQ(static_cast<int64_t>(batch.logit_rows.size()), expected.num_logit_rows);
      EXPECT_EQ(attended, expected.attended);
    }
  }
}

// Sequences at random positions: the mean over draws of the rank with most of them.
TEST(BusiestGenerating, IsThatOfDrawnSequences) {
  std::mt19937 random(7);
  for (const int ranks : {2, 4, 8}) {
    for (const int count : {1, 3, 16, 200}) {
      constexpr int kDraws = 4000;
      double sum = 0.0;
      for (int draw = 0; draw < kDraws; ++draw) {
        std::vector<int> of_ranks(static_cast<size_t>(ranks));
        for (int i = 0; i < count; ++i) ++of_ranks[random() % of_ranks.size()];
        sum += *std::ranges::max_element(of_ranks);
      }
      const StepShape busiest = busiest_generating(model::decode_step(count, 1000, 0), count,
                                                   {.num_ranks = ranks, .turn = 64});
      const auto tokens = static_cast<double>(busiest.num_tokens);
      EXPECT_NEAR(tokens, sum / kDraws, 0.6 + 0.05 * sum / kDraws) << ranks << ' ' << count;
      EXPECT_LE(busiest.num_tokens, count);
      EXPECT_GE(busiest.num_tokens, (count + ranks - 1) / ranks);
    }
  }
}

TEST(BusiestChunk, HasItsPartOfLongPromptsAndOfManyShortOnes) {
  const ContextDeal deal{.num_ranks = 4, .turn = 256};
  const StepShape whole = model::prompt_step(1, 8192, 0);
  const StepShape part = busiest_chunk(8192, 8192, deal);
  EXPECT_EQ(part.num_tokens, whole.num_tokens / 4);
  EXPECT_GT(part.attended, whole.attended / 4);
  EXPECT_LT(part.attended, 1.1 * static_cast<double>(whole.attended) / 4);
  // Eight prompts of one turn: two on each rank. Nine: three on one.
  EXPECT_EQ(busiest_chunk(8 * 256, 256, deal).num_tokens, 2 * 256);
  EXPECT_EQ(busiest_chunk(9 * 256, 256, deal).num_tokens, 3 * 256);
}

}  // namespace
}  // namespace wideep::advise
