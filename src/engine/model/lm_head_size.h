// SPDX-License-Identifier: Apache-2.0
//
// LM head tensor parallelism inside attention data parallelism (TensorRT-LLM's
// enable_lm_head_tp_in_adp): how many ranks share the head of their tokens. With few tokens the
// product is bound by reading the matrix, which each of them then does for a part only; from 256
// tokens on it is bound by computing.
//
// Thread safety: a pure function.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace wideep::model {

// TensorRT-LLM's rule (create_lm_head_tp_mapping): 256 / tokens, rounded up to a power of two, at
// most the ranks of a node. Where that divides neither these nor all ranks, which TensorRT-LLM
// refuses, the next smaller number that divides both. tokens: the most of any rank, at least 1.
// max: ranks of a node, at least 1.
inline int lm_head_size(int tokens, int num_ranks, int max) {
  const auto wanted = static_cast<int>(std::bit_ceil(static_cast<uint32_t>(256 / tokens)));
  int size = std::clamp(wanted, 1, std::min(max, num_ranks));
  while (num_ranks % size != 0 || max % size != 0) --size;
  return size;
}

}  // namespace wideep::model
