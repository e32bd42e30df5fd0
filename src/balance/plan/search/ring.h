// SPDX-License-Identifier: Apache-2.0
//
// The ring: replicas placed so that load can flow between any two ranks.
//
// The replicated experts follow one another on a ring of ranks, and neighbours share a rank: an
// expert with r replicas joins r - 1 pairs of neighbouring ranks, so num_slots - E extra replicas
// close the ring when there are as many as ranks. When the load drifts, new shares alone (no moved
// weights) can then pass load from rank to rank. With more extra replicas the walk goes on with
// another stride, so that a second lap joins other pairs. Heavy and light experts alternate: an arc
// of ranks whose experts all grow at once limits the flow, and arcs of similar experts do that more
// often (6 % drift of real loads, re-split: 0.4 to 0.6 % imbalance; by id 1.1 to 1.6 %, by load 0.8
// %).
//
// Thread safety: pure functions of the board.
#pragma once

#include "plan/search/board.h"

namespace wideep::balance::search {

// Puts all replicas of the replicated experts on the ring and pins them. Needs an empty board with
// replica counts, and the list of Search::sort_replicated. False (and a board to be cleared) if
// they do not fit: a rank has no slot left, or would get two replicas of an expert.
bool place_ring(Board& board, int num_replicated);

}  // namespace wideep::balance::search
