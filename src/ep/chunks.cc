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
  // Fewer chunks than this cannot fit even if tokens could be cut evenly. The loop ends, for chunks
  // of one token of each rank fit.
  const int64_t all = std::accumulate(tokens_of_ranks.begin(), tokens_of_ranks.end(), int64_t{0});
  int64_t chunks = std::max<int64_t>(1, (all + max_group_tokens - 1) / max_group_tokens);
  while (!fits(chunks)) ++chunks;
  return static_cast<int>(chunks);
}

TokenRange chunk_of(int num_tokens, int chunk, int num_chunks) {
  const auto start = [&](int index) {
    return static_cast<int>(int64_t{num_tokens} * index / num_chunks);
  };
  return {start(chunk), start(chunk + 1) - start(chunk)};
}

}  // namespace wideep::ep
