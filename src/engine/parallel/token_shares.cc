// SPDX-License-Identifier: Apache-2.0
#include "parallel/token_shares.h"

#include <algorithm>

#include "kernels/kv_page.h"

namespace wideep::parallel {

int context_turn(const ParallelConfig& settings, int max_num_tokens) {
  // At most 4 pages: a compromise between the expansion of pages and even work (token_shares.h).
  constexpr int kPage = kernels::kPageTokens, kLongest = 4 * kPage;
  if (settings.cp_config && settings.cp_config->tokens_per_block) {
    return static_cast<int>(*settings.cp_config->tokens_per_block);
  }
  // A chunk of max_num_tokens then has at least about one turn for every rank.
  const int ranks = settings.sizes.cp, share = (max_num_tokens + ranks - 1) / ranks;
  return std::min((share + kPage - 1) / kPage * kPage, kLongest);
}

int tokens_of_rank(const ParallelConfig& settings, int max_num_tokens) {
  const int ranks = settings.sizes.cp;
  if (ranks == 1) return max_num_tokens;
  const int share = (max_num_tokens + ranks - 1) / ranks;
  const int turn = context_turn(settings, max_num_tokens);
  return std::min(max_num_tokens, (share + turn - 1) / turn * turn);
}

int dispatched_tokens(const ParallelConfig& settings, int max_num_tokens) {
  // Ranks that compute batches together each dispatch their part of the tokens.
  const int sharers = settings.shares_batches() ? settings.sizes.tp : 1;
  return (tokens_of_rank(settings, max_num_tokens) + sharers - 1) / sharers;
}

}  // namespace wideep::parallel
