// SPDX-License-Identifier: Apache-2.0
//
// wideep's own planner.
//
// 1. Replica counts by threshold search: the smallest load that no replica exceeds.
// 2. The replicated experts on a ring of ranks (search/ring.h), so that later a change of shares
//    alone can follow the load. Only if the ring costs balance they are placed like the others.
// 3. The other experts in rounds, heaviest to the lightest rank.
// 4. Swaps between hot and cold ranks.
// 5. Weighted split: the best shares for that placement; if they are not perfect and the shape
//    allows it, the exact placement (placement_exact.h) instead; with fewer spare slots, components
//    of ranks that are each balanced exactly (placement_components.h), where these are better.
// If the result misses the tolerance, two other starts without a ring are improved too, one of them
// the greedy of the other planners. So the imbalance is never above theirs where they keep replicas
// apart, or it is below twice the tolerance.
// With up to 48 slots, simulated annealing (window_counts.h) looks for what is still missing.
//
// With one or two slots per rank the best placement of given replica counts is known, and neither a
// ring nor swaps can improve it: with one slot it is any, with two there is a search over the
// counts instead (search/pairs.h).
//
// With groups and nodes, whole groups go to nodes first (as balanced as swaps get it), and each
// node is planned for itself. Two replicas of an expert never share a rank.
#pragma once

#include <memory>

#include "wideep/balancer.h"
#include "wideep/status.h"

namespace wideep::balance {

// Errors (invalid input): as check_plan_shape; more slots than num_experts · ep_size, which would
// leave no choice but two replicas on one rank.
Result<std::unique_ptr<LayerPlanner>> make_wideep_planner(const PlanShape& shape,
                                                          const PlannerOptions& options);

}  // namespace wideep::balance
