// SPDX-License-Identifier: Apache-2.0
//
// Balances a placement in several windows at once.
//
// A plan for the sum of all windows gives every rank its part in total, but in a single window one
// rank may hold the experts that are hot then. Which experts share a rank is largely a free choice,
// so experts that are hot in the same window are separated: swaps of two experts between the
// hottest rank of a window and another one, as long as the sum over windows and ranks of (rank
// load)² falls, every window scaled to the same load. Only experts with one replica move: the
// others stay on the ring by which shares alone follow the load (search/ring.h).
//
// A swap of loads u and v [window] of the ranks a and b changes the sum by 2 Σ d·(d − (a − b)), d =
// u − v: one pass over the slots of a rank evaluates all its swaps.
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
