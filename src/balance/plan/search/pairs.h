// SPDX-License-Identifier: Apache-2.0
//
// Replica counts for ranks of two slots each.
//
// With two slots per rank, the best placement for given counts is the fold: the heaviest replica
// with the lightest, the second with the second, and so on. So only the counts are to be chosen.
// Making the heaviest replica as light as possible is not the best choice: a heavy replica may stay
// if an extra replica elsewhere makes a light enough partner for it.
//
// Counts keep every rank at or below a level L if supply meets demand. A replica v > L / 2 needs a
// partner ≤ L - v of its own; the other replicas are partners. Counts are feasible if, for every t
// ≤ L / 2, the replicas that need a partner ≤ t are no more than the partners ≤ t. On a grid of 128
// values of t (needs rounded down, partners up, so that counts that pass are feasible) that is one
// vector of differences; moving one replica from an expert to another adds four steps to it, which
// takes about 20 ns to try. The search takes random moves that do not raise the total lack of
// partners until nothing lacks, then lowers the level; it is seeded and thus deterministic.
//
// Thread safety: none; each planner has its own.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/search/board.h"

namespace wideep::balance::search {

struct PairSearch {
  static constexpr int kGrid = 512;
  static constexpr int kTriesPerLevel = 800;

  static constexpr int kDraws = 12;  // for one side of a move

  explicit PairSearch(const Board& board);

  int stride = 0;                // counts per expert in the tables: 0, 1, ..., stride - 1
  std::vector<int16_t> step_at;  // [E, stride] where the expert's step begins; kGrid: nowhere
  std::vector<int16_t> step_by;  // [E, stride] + partners offered, - partners needed
  std::vector<int32_t> by_load;  // [E] heaviest first
  std::vector<int32_t> counts;   // [E] replicas now
  std::vector<int32_t> donors;   // experts with two replicas or more, and some that had two before
  std::vector<int32_t> lacking;  // where surplus is negative
  std::vector<float> replicas;   // [S] loads, heaviest first
  AlignedVector<int16_t> surplus;  // [kGrid] partners offered minus needed
  uint32_t random = 1;
};

}  // namespace wideep::balance::search
