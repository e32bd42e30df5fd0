// SPDX-License-Identifier: Apache-2.0
//
// Repair: the load has changed, the weights are where they are; balance again with the fewest
// moves. A move is a replica on a rank that did not hold it, whose weights have to be copied
// (moves.h). A new plan moves almost all of them; a repair keeps every other expert in its slot.
//
// Weighted split: new shares first (resplit.h), which cost nothing. Where they are not enough, a
// minimum cut names the ranks that are stuck, and moves are made across it (repair/cut_search.h),
// one replica at a time. A placement with replicas on a ring (planner_wideep.h) seldom needs any.
//
// Equal split: hot ranks swap with cold ones, and replica counts follow where swaps do not suffice
// (repair/equal_repair.h).
//
//   WIDEEP_TRY_ASSIGN(auto repairer, make_repairer(shape, {.split = Split::kWeighted}));
//   const RepairReport report = repairer->repair(load, plan, &plan);  // in place
//
// Thread safety: one thread at a time per repairer.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "balance/planner.h"
#include "wideep/status.h"

namespace wideep::balance {

struct RepairOptions {
  Split split = Split::kWeighted;
  double tolerance = 0.01;  // imbalance ratio at which to stop
  int max_moves = std::numeric_limits<int>::max();
  int64_t bytes_per_expert = 0;  // weights of one expert of the layer
};

// Imbalance ratios for the new load (plan.h), and what the repair costs.
struct RepairReport {
  double imbalance_before = 0.0;   // the old placement with its old shares
  double imbalance_resplit = 0.0;  // ... with the best shares; equal split: as before
  double imbalance_after = 0.0;    // ≤ imbalance_resplit
  int moves = 0;
  int64_t bytes = 0;  // moves · bytes_per_expert
};

class Repairer {
 public:
  virtual ~Repairer() = default;

  // load: [E], finite and ≥ 0, any unit. from: a valid placement of the shape (check_placement) by
  // any planner; its shares may be absent (equal then), and kEqual ignores them. `to` gets a
  // placement and shares: within max_moves; replicas that stay keep their slots; no rank gets a
  // second replica of an expert. `to` may be `&from`.
  //
  // Deterministic. Depends on the arguments only. Allocates on the first call, and later only for a
  // placement with more links between ranks than any before (replica_graph.h).
  virtual RepairReport repair(std::span<const double> load, const LayerPlan& from,
                              LayerPlan* to) = 0;
};

// Errors (invalid input): as check_plan_shape; a tolerance or max_moves below 0; groups kept on
// nodes (num_nodes and num_groups both above 1), which repair would tear apart.
Result<std::unique_ptr<Repairer>> make_repairer(const PlanShape& shape,
                                                const RepairOptions& options);

}  // namespace wideep::balance
