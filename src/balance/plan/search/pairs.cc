// SPDX-License-Identifier: Apache-2.0
#include "plan/search/pairs.h"

namespace wideep::balance::search {

PairSearch::PairSearch(const Board& board) : surplus(kGrid, 0) {
  const auto experts = static_cast<size_t>(board.num_experts);
  // The most that choose_pairs() asks for, so that it never allocates: its stride is the greatest
  // count, at most num_ranks, + 3, and each try adds at most one donor.
  const auto max = static_cast<size_t>(board.num_ranks) + 3;
  step_at.reserve(experts * max);
  step_by.reserve(experts * max);
  by_load.resize(experts);
  counts.resize(experts);
  lacking.reserve(kGrid);
  donors.reserve(experts + kTriesPerLevel);
  replicas.reserve(static_cast<size_t>(board.num_ranks * board.slots_per_rank));
}

}  // namespace wideep::balance::search
