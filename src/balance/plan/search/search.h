// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of wideep's planner, one body compiled for several instruction sets. All give
// the same result: the arithmetic of a lane does not depend on the width of the registers.
//
// Thread safety: pure functions of the board.
#pragma once

#include <limits>
#include <string_view>
#include <vector>

#include "plan/search/board.h"
#include "plan/search/pairs.h"

namespace wideep::balance::search {

struct Goal {
  float tolerance = 1e-3f;  // stop at this imbalance ratio
  int max_rounds = 50;      // of swaps; a round pairs each rank with one other
  int max_swaps = std::numeric_limits<int>::max();
};

struct Search {
  std::string_view isa;
  bool (*supported)();

  // Sets replica counts that sum to num_slots and make the heaviest replica as light as possible
  // (the greedy's result), none above num_ranks.
  void (*replicate)(Board& board, int num_slots);
  // Writes the keys of the experts with several replicas to experts_by_load, heaviest expert first.
  // Returns their number.
  int (*sort_replicated)(Board& board);
  // Places every replica that has no slot yet, heaviest first, in rounds: each rank gets one of the
  // next num_ranks replicas, the lightest rank the heaviest. Needs num_slots = slots in all.
  void (*fill)(Board& board);
  // Swaps pairs of slots between hot and cold ranks until the goal is met, a limit is reached
  // or nothing helps. Returns the imbalance ratio.
  float (*improve)(Board& board, const Goal& goal);
  // For two slots per rank: starts from the replica counts and changes them so that the fold
  // (which fill() then makes) is more even. Keeps their sum.
  void (*choose_pairs)(Board& board, PairSearch& pairs);
};

// Best first. The last one runs on every processor.
const std::vector<const Search*>& all_searches();
// The best that this processor can run; WIDEEP_ISA chooses one by name, and an unknown name falls
// back to the best (kernels::select_kernels reports it).
const Search& best_search();

}  // namespace wideep::balance::search
