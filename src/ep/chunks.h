// SPDX-License-Identifier: Apache-2.0
//
// An iteration's tokens in chunks that are dispatched one after the other, so that no call brings
// more than max_group_tokens of all ranks together (TRT's moe_config.max_num_tokens).
//
// All follows from the ranks' numbers of tokens: ranks that know them agree without an exchange.
#pragma once

#include <cstdint>
#include <span>

namespace wideep::ep {

// The smallest number of chunks such that even their longest parts fit together:
// Σ_r ceil(tokens_r / chunks) ≤ max_group_tokens; at least 1. max_group_tokens 0: no bound.
// REQUIRES: max_group_tokens 0 or at least the number of ranks.
int num_chunks(std::span<const int32_t> tokens_of_ranks, int64_t max_group_tokens);

// A rank's tokens of one chunk: a part of its batch, never more than ceil(num_tokens / chunks).
struct TokenRange {
  int begin = 0;
  int size = 0;
};
TokenRange chunk_of(int num_tokens, int chunk, int num_chunks);

}  // namespace wideep::ep
