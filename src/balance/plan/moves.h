// SPDX-License-Identifier: Apache-2.0
//
// The cost of a change from one placement to another: the weights that ranks must copy.
//
// A *move* is a replica on a rank that did not hold it: of each rank's experts those that are new,
// counted with repetition. The order of a rank's slots does not change that count, but only an
// expert that keeps its slot needs no copy within the rank's memory; align_slots keeps as many
// slots as possible.
//
// Both placements have the same E, R and S. An unused slot costs nothing, and keeps its place too.
//
// Thread safety: pure functions.
#pragma once

#include "wideep/balancer.h"

namespace wideep::balance {

// Allocates nothing.
int count_moves(const Placement& from, const Placement& to);

// Permutes the slots of each rank such that experts that stay keep their slot.
Placement align_slots(const Placement& from, Placement to);
// The same in place, with the shares. Allocates nothing.
void align_slots(const Placement& from, LayerPlan* to);

}  // namespace wideep::balance
