// SPDX-License-Identifier: Apache-2.0
#include "advise/context_part.h"

#include <algorithm>
#include <cmath>

#include "cost/expert_load.h"
#include "parallel/parallel_config.h"
#include "parallel/token_shares.h"

namespace wideep::advise {
namespace {

using model::StepShape;

int64_t scaled(int64_t value, double part) {
  return std::llround(static_cast<double>(value) * part);
}

StepShape scaled(const StepShape& shape, double part) {
  return {.num_tokens = scaled(shape.num_tokens, part),
          .num_logit_rows = scaled(shape.num_logit_rows, part),
          .attended = scaled(shape.attended, part),
          .cached = scaled(shape.cached, part),
          .num_cached = scaled(shape.num_cached, part)};
}

}  // namespace

ContextDeal context_deal(int num_ranks, int max_num_tokens) {
  parallel::ParallelConfig settings;
  settings.sizes.cp = num_ranks;
  return {.num_ranks = num_ranks,
          .turn = parallel::context_turn(settings, max_num_tokens),
          .rank_tokens = parallel::tokens_of_rank(settings, max_num_tokens)};
}

std::vector<StepShape> dealt_shapes(std::span<const DealtTokens> sequences,
                                    const ContextDeal& deal) {
  std::vector<StepShape> shapes(static_cast<size_t>(deal.num_ranks));
  for (const DealtTokens& sequence : sequences) {
    std::vector<bool> reads(shapes.size(), false);
    const int64_t end = sequence.computed + sequence.tokens;
    for (int64_t position = sequence.computed; position < end;) {
      const int64_t turn = position / deal.turn;
      const int64_t next = std::min(end, (turn + 1) * deal.turn), count = next - position;
      const auto rank = static_cast<size_t>((sequence.first_rank + turn) % deal.num_ranks);
      StepShape& shape = shapes[rank];
      shape.num_tokens += count;
      shape.attended += (position + 1 + next) * count / 2;  // position + 1, …, next
      if (!reads[rank]) {
        shape.cached += sequence.computed;
        shape.num_cached += sequence.computed > 0 ? 1 : 0;
      }
      reads[rank] = true;
      if (next == end) ++shape.num_logit_rows;
      position = next;
    }
  }
  return shapes;
}

StepShape busiest_of(std::span<const StepShape> shapes) {
  StepShape max;
  for (const StepShape& shape : shapes) {
    max.num_tokens = std::max(max.num_tokens, shape.num_tokens);
    max.num_logit_rows = std::max(max.num_logit_rows, shape.num_logit_rows);
    max.attended = std::max(max.attended, shape.attended);
    max.cached = std::max(max.cached, shape.cached);
    max.num_cached = std::max(max.num_cached, shape.num_cached);
  }
  return max;
}

StepShape busiest_generating(const StepShape& all, int count, const ContextDeal& deal) {
  if (deal.num_ranks == 1 || count == 0) return all;
  // Sequences are on any of the ranks, each as likely. Numbers on n ranks that have the sum `count`
  // differ by a factor of n / (n − 1) more (in variance) than if they were independent.
  const double mean = static_cast<double>(count) / deal.num_ranks;
  const double max = mean + cost::expected_maximum(deal.num_ranks) * std::sqrt(mean);
  return scaled(all, std::clamp(max, 1.0, static_cast<double>(count)) / count);
}

StepShape busiest_chunk(int64_t tokens, int64_t isl, const ContextDeal& deal) {
  const int64_t prompts = std::max<int64_t>(1, tokens / isl), each = tokens / prompts;
  const int64_t before = (isl - std::min(isl, each)) / 2;
  std::vector<DealtTokens> sequences;
  // Of as many prompts as there are ranks each rank has the same, whatever the turns.
  const int64_t rounds = prompts / deal.num_ranks;
  for (int64_t i = 0; i < prompts % deal.num_ranks; ++i) {
    sequences.push_back({.first_rank = static_cast<int>(i), .computed = before, .tokens = each});
  }
  StepShape shape = busiest_of(dealt_shapes(sequences, deal));
  if (rounds == 0) return shape;
  for (int i = static_cast<int>(sequences.size()); i < deal.num_ranks; ++i) {
    sequences.push_back({.first_rank = i, .computed = before, .tokens = each});
  }
  const StepShape round = busiest_of(dealt_shapes(sequences, deal));
  for (int64_t i = 0; i < rounds; ++i) shape += round;
  return shape;
}

}  // namespace wideep::advise
