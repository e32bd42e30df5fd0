// SPDX-License-Identifier: Apache-2.0
//
// The ring: replicas laid out so that load can flow between any two ranks.
//
// The replicated experts stand one after the other on a ring of ranks, and neighbours share a rank:
// an expert with r replicas joins r - 1 pairs of neighbouring ranks, so num_slots - E extra
// replicas close the ring when there are as many as ranks. When the load drifts, new shares alone
// (no moved weights) can then pass load from rank to rank. With more extra replicas the walk goes
// on with another stride, so that a second lap joins other pairs. Heavy and light experts take
// turns: what limits the flow is an arc of ranks whose experts all grow at once, and arcs of one
// kind do that more often (6 % drift of real loads, re-split: 0.4 to 0.6 % imbalance; by id 1.1
// to 1.6 %, by load 0.8 %).
//
// Thread safety: pure functions of the board.
#pragma once

#include "balance/search/board.h"

namespace wideep::balance::search {

// Needs an empty board with replica counts, and what Search::sort_replicated found there. Puts all
// replicas of the replicated experts on the ring and pins them. False (and a board to be cleared)
// when they do not fit: a rank without a slot left, or an expert that would meet itself.
bool lay_ring(Board& board, int num_replicated);

}  // namespace wideep::balance::search
