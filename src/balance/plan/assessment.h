// SPDX-License-Identifier: Apache-2.0
//
// Assessment of a plan: its imbalance on the load it was made for and on later load, beside the
// placement before it, the proven lower bound, and the number of experts that have to move.
//
// Ratios use a layer's load summed over iterations and ranks, because the bound holds for that sum;
// on held-out load they are means over its windows. (A load report averages over iterations
// instead.)
//
// Thread safety: plain values; pure functions.
//
//   const std::vector<double> bounds = lower_bounds(load, shape, Split::kEqual);
//   const Assessment result = assess({.load = &load, .before = &linear, .bounds = bounds}, plan);
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "placement/token_spread.h"
#include "plan/model_plan.h"
#include "plan/windowed_load.h"
#include "wideep/balancer.h"
#include "wideep/placement.h"

namespace wideep::balance {

// The placement of an engine without a plan: experts in order; if they do not divide among the
// ranks, TRT's default for the next multiple. REQUIRES: ep_size ≥ 1.
ModelPlacement default_model_placement(const ModelLoad& load, int ep_size);

// The number of (rank, expert) pairs in `after` that are not in `before`: experts whose weights
// must be copied to a rank. Equal to count_moves (moves.h) if no rank holds an expert twice, but
// the two placements may have different numbers of slots. REQUIRES: the same ranks and experts.
int count_new_pairs(const Placement& before, const Placement& after);

// True if a rank holds two replicas of one expert.
bool has_two_replicas_on_a_rank(const Placement& placement);

// imbalance_lower_bound (wideep/balancer.h) of each layer.
std::vector<double> lower_bounds(const ModelLoad& load, const PlanShape& shape, Split split);

// The shape without the properties that the planner ignores: trt ignores nodes and groups.
PlanShape effective_shape(std::string_view planner, PlanShape shape);

// What plans of a model are compared with. The pointees must outlive the calls.
struct Measure {
  const ModelLoad* load = nullptr;
  const WindowedLoad* held_out = nullptr;  // null: none
  const ModelPlacement* before = nullptr;
  std::span<const double> bounds;  // [layer]
  int num_live_ranks = 0;          // as for imbalance_ratio; 0: the ranks that hold an expert
};

struct Figures {
  double imbalance_now = 0;       // of the placement before, equal split
  double imbalance_equal = 0;     // of the plan, equal split
  double imbalance_weighted = 0;  // of the plan, with the best shares for its placement
  double lower_bound = 0;
  double moves = 0;
  // On held-out load, if there is any, the mean of its windows: with the plan's own shares, and
  // with shares computed from each window itself, as by an engine that counts tokens before
  // dispatch.
  std::optional<double> imbalance_now_held_out;  // of the placement before, equal split
  std::optional<double> imbalance_held_out;
  std::optional<double> imbalance_held_out_resplit;
  // If a trace shows which experts tokens choose together.
  std::optional<Spread> spread;
  std::optional<Spread> spread_held_out;

  // With the split that the plan was made for.
  double imbalance(Split split) const {
    return split == Split::kEqual ? imbalance_equal : imbalance_weighted;
  }
};

struct Assessment {
  std::vector<Figures> layers;
  Figures mean;  // over the layers
};

// REQUIRES: plan, before and held_out have every layer of the load.
Assessment assess(const Measure& measure, const PlannedModel& plan);

}  // namespace wideep::balance
