// SPDX-License-Identifier: Apache-2.0
//
// How many tokens of an iteration each rank computes.
//
// Thread safety: pure functions.
#pragma once

#include "parallel/parallel_config.h"

namespace wideep::parallel {

// Context parallelism deals the tokens of a sequence to context_parallel_size ranks in turns. The
// length of a turn, in tokens: cp_config.tokens_per_block where it is set; else a rank's share of
// max_num_tokens, at most 256. With latent attention the tokens of a turn share the expansion of a
// page, so short turns cost more; long turns make the ranks' work uneven.
int context_turn(const ParallelConfig& settings, int max_num_tokens);

// The most tokens of an iteration that one rank computes: max_num_tokens, or with context
// parallelism its share in whole turns.
int tokens_of_rank(const ParallelConfig& settings, int max_num_tokens);

// The most tokens of an iteration that a rank brings to a dispatch.
int dispatched_tokens(const ParallelConfig& settings, int max_num_tokens);

}  // namespace wideep::parallel
