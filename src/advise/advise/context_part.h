// SPDX-License-Identifier: Apache-2.0
//
// Context parallelism: what the busiest of the ranks computes that share sequences.
//
// The tokens of a sequence, and the pages with their keys and values, are dealt to n ranks in turns
// of some pages; sequences begin with different ranks (schedule/scheduler.h). A rank computes the
// tokens of its turns, and reads what they attend to, on whichever rank it lies. In each layer the
// ranks wait for each other, so that the busiest one counts.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model_work.h"

namespace wideep::advise {

struct ContextDeal {
  int num_ranks = 1;    // that share sequences
  int turn = 256;       // tokens
  int rank_tokens = 0;  // most of an iteration on one rank
};
// As the engine deals. max_num_tokens: of an iteration of all these ranks.
ContextDeal context_deal(int num_ranks, int max_num_tokens);

// Tokens that an iteration computes of a sequence.
struct DealtTokens {
  int first_rank = 0;    // that has the sequence's first turn
  int64_t computed = 0;  // positions before them
  int64_t tokens = 0;
};

// What each rank computes, [num_ranks]: exact. The logits are those of each sequence's last token.
std::vector<model::StepShape> dealt_shapes(std::span<const DealtTokens> sequences,
                                           const ContextDeal& deal);

// Of each count the most that one of the shapes has.
model::StepShape busiest_of(std::span<const model::StepShape> shapes);

// Of `count` sequences at any positions, each with 1 + drafts tokens, as they are on the busiest
// rank, on average. all: what the ranks together compute.
model::StepShape busiest_generating(const model::StepShape& all, int count,
                                    const ContextDeal& deal);

// A chunk of `tokens` prompt tokens, in the middle of prompts of `isl` tokens.
model::StepShape busiest_chunk(int64_t tokens, int64_t isl, const ContextDeal& deal);

}  // namespace wideep::advise
