// SPDX-License-Identifier: Apache-2.0
//
// An iteration's tokens are cut into chunks, which are dispatched one after the other, so that no
// call brings more than max_group_tokens of all ranks together (TRT's moe_config.max_num_tokens).
//
// Chunks follow from the ranks' numbers of tokens alone: ranks that know these agree without an
// exchange.
#pragma once

#include <cstdint>
#include <span>

namespace wideep::ep {

// The smallest number of chunks such that even their longest parts fit together:
// Σ_r ceil(tokens_r / chunks) ≤ max_group_tokens; at least 1. max_group_tokens 0: no bound.
// REQUIRES: max_group_tokens 0 or at least the number of ranks.
int num_chunks(std::span<const int32_t> tokens_of_ranks, int64_t max_group_tokens);

// A rank's tokens of one chunk: consecutive ones of its batch, at most ceil(num_tokens /
// num_chunks).
struct TokenRange {
  int begin = 0;
  int size = 0;
};
TokenRange chunk_of(int num_tokens, int chunk, int num_chunks);

}  // namespace wideep::ep
