// SPDX-License-Identifier: Apache-2.0
//
// What it costs to go from one placement to another: the weights that ranks must copy.
//
// A *move* is a replica on a rank that did not hold it: of each rank's experts those that are new,
// counted with repetition. Which of its slots a rank uses for an expert makes no difference to that
// count, but only an expert that keeps its slot stays where it is in memory: align_slots.
//
// Both placements have the same E, R and S. An unused slot costs nothing, and stays where it is
// too.
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
