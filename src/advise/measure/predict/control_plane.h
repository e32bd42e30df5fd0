// SPDX-License-Identifier: Apache-2.0
//
// What the control plane of a group costs each rank, by the number of ranks: planning, agreement,
// counts and choice of slots, and the bookkeeping of dispatch and combine, run for real by ranks
// that are threads, with rows of a cache line and no experts. Measured is processor time without
// waits, so that ranks may outnumber cores.
//
// What a rank does is partly the same in every group and partly for each peer, so its cost is
// predicted as a + b · ranks, from groups small enough to be measured anywhere.
//
// Thread safety: one call at a time; each starts and ends its threads.
#pragma once

#include <span>

#include "plan/model_plan.h"
#include "wideep/status.h"

namespace wideep::measure {

struct ControlOptions {
  int num_ranks = 1;
  int spare_slots = 32;  // of a layer, at least, beyond one for each expert
  int top_k = 8;
  int tokens = 8;  // of a rank in an iteration
  int calls = 8;   // measured, after two to warm up; each takes the next layer's load
  int layers = 8;  // that ranks keep tables of; any other takes as much again
};

// Seconds of processor time of a rank, the mean over ranks; bytes of a rank.
struct ControlCost {
  int num_ranks = 1;
  int num_slots = 0;       // of a layer
  double imbalance = 0.0;  // mean over layers, as planned
  double plan = 0.0;       // of one layer, on the rank that plans
  double agree = 0.0;      // of an iteration: the words of all ranks, and what they decide
  double split = 0.0;      // of a layer: counts of all ranks, shares of replicas, slots of tokens
  double exchange = 0.0;   // of a layer: dispatch and combine, without experts
  double memory = 0.0;     // touched, with the tables of options.layers: shared, and private
  double memory_of_sizes = 0.0;  // as the sizes of what is touched say
};

// load: what tokens choose by, and placements are planned for. Errors: a shape that the planner
// cannot serve (invalid input); memory is refused (failed).
Result<ControlCost> run_control_plane(const balance::ModelLoad& load,
                                      const ControlOptions& options);

// As many slots as hold all experts and the spare ones, equally many on each rank.
int slots_for(int num_experts, int spare_slots, int num_ranks);

// A cost over ranks: a + b · ranks with the least relative squares.
struct LinearCost {
  double base = 0.0, per_rank = 0.0;

  double at(int num_ranks) const { return base + per_rank * num_ranks; }
};
// REQUIRES: as many of both; costs > 0; two different numbers of ranks.
LinearCost fit_linear(std::span<const int> ranks, std::span<const double> costs);

}  // namespace wideep::measure
