// SPDX-License-Identifier: Apache-2.0
//
// Splits the tokens of an iteration into chunks, one dispatch call each, so that a call has at most
// max_group_tokens tokens of all ranks together (TensorRT-LLM's moe_config.max_num_tokens).
//
// Chunks depend only on the ranks' numbers of tokens. Ranks that know these compute the same chunks
// without communication.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace wideep::ep {

// The smallest number of chunks for which the largest chunk fits:
// Σ_r ceil(tokens_r / chunks) ≤ max_group_tokens; at least 1. max_group_tokens 0: no bound.
// REQUIRES: max_group_tokens is 0, or at least the number of ranks.
int num_chunks(std::span<const int32_t> tokens_of_ranks, int64_t max_group_tokens);

// The tokens of one rank in one chunk: a range of its batch, of at most ceil(num_tokens /
// num_chunks) tokens.
struct TokenRange {
  int begin = 0;
  int size = 0;
};
TokenRange chunk_of(int num_tokens, int chunk, int num_chunks);

}  // namespace wideep::ep
