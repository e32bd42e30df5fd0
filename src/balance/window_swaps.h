// SPDX-License-Identifier: Apache-2.0
//
// Balances a placement in several windows at once.
//
// A plan for the sum of all windows gives every rank its part in total, but in a window one rank
// may hold what is hot then. Which experts share a rank is free to choose to a large extent, so it
// is chosen such that hot ones of the same window are apart: swaps of two experts between the
// hottest rank of a window and another one, as long as the sum over windows and ranks of (rank
// load)² falls, every window scaled to the same load. Only experts with one replica move, so that
// the ring of the others stays, by which shares alone follow the load (search/ring.h).
//
// A swap of loads u and v [window] of the ranks a and b changes the sum by 2 Σ d·(d − (a − b)), d =
// u − v: one pass over the slots of a rank tries them all.
//
// Thread safety: pure function.
#pragma once

#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

// windows: [window][E], finite and ≥ 0. plan: a valid placement of the shape, with its shares; its
// slots are rearranged. Experts stay on their node where the shape keeps groups on nodes.
// Deterministic; never raises the sum of squares.
void swap_for_windows(std::span<const std::vector<double>> windows, const PlanShape& shape,
                      LayerPlan* plan);

}  // namespace wideep::balance
