// SPDX-License-Identifier: Apache-2.0
//
// wideep's own planner.
//
// 1. Replica counts by threshold search: the least load that no replica exceeds.
// 2. The replicated experts on a ring of ranks (search/ring.h), so that shares alone can follow
//    the load later; only where that costs balance they are placed like the others.
// 3. The other experts in rounds, heaviest to the lightest rank.
// 4. Swaps between hot and cold ranks.
// Where that misses the tolerance, two other starts without a ring are improved too, one of them
// the greedy of the other planners: the imbalance is never above theirs where they keep replicas
// apart, or it is below twice the tolerance. Two replicas of an expert never share a rank.
#pragma once

#include <memory>

#include "balance/planner.h"
#include "wideep/status.h"

namespace wideep::balance {

struct WideepOptions {
  double tolerance = 1e-3;  // imbalance ratio at which the search stops
  int max_rounds = 100;     // of swaps, per layer
};

// Errors (invalid input): as check_plan_shape; more slots than num_experts · ep_size, which would
// leave no choice but two replicas on one rank.
Result<std::unique_ptr<LayerPlanner>> make_wideep_planner(const PlanShape& shape,
                                                          const WideepOptions& options);

}  // namespace wideep::balance
