// SPDX-License-Identifier: Apache-2.0
#include "ep/chunks.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace wideep::ep {

int num_chunks(std::span<const int32_t> tokens_of_ranks, int64_t max_group_tokens) {
  if (max_group_tokens == 0) return 1;
  WIDEEP_CHECK_GE(max_group_tokens, static_cast<int64_t>(tokens_of_ranks.size()));
  const auto fits = [&](int64_t chunks) {
    int64_t sum = 0;
    for (const int32_t tokens : tokens_of_ranks) sum += (tokens + chunks - 1) / chunks;
    return sum <= max_group_tokens;
  };
  // Lower bound: fewer chunks cannot fit even if all tokens were split evenly. The loop ends, since
  // chunks with at most one token per rank fit (max_group_tokens ≥ number of ranks).
  const int64_t all = std::accumulate(tokens_of_ranks.begin(), tokens_of_ranks.end(), int64_t{0});
  int64_t chunks = std::max<int64_t>(1, (all + max_group_tokens - 1) / max_group_tokens);
  while (!fits(chunks)) ++chunks;
  return static_cast<int>(chunks);
}

TokenRange chunk_of(int num_tokens, int chunk, int num_chunks) {
  // 64 bits: tokens × chunks may exceed 31.
  const auto start = [&](int index) {
    return static_cast<int>(int64_t{num_tokens} * index / num_chunks);
  };
  return {start(chunk), start(chunk + 1) - start(chunk)};
}

}  // namespace wideep::ep
