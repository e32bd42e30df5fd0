// SPDX-License-Identifier: Apache-2.0
//
// Each layer is judged alone, then the means are taken. A plan is judged with the best shares for
// its placement, not with its own, so that planners are compared by what their placements allow;
// on held-out windows both are shown, since the plan's own shares are as old as the plan. Moves
// are counted between sets of experts: a rank that already holds an expert needs no copy for
// another slot.
#include "plan/assessment.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "wideep/balancer.h"

namespace wideep::balance {
namespace {

// Means over the held-out windows. `now` is the placement before; `own` uses the plan's shares,
// which are as old as the plan; `best` computes new shares in each window, which needs no moves.
void judge_held_out(const Measure& measure, size_t idx, const PlannedModel& plan,
                    Figures* figures) {
  const int layer = measure.load->layers[idx];
  const Placement& before = measure.before->layers.at(layer);
  const Placement& placement = plan.placement.layers.at(layer);
  const Shares equal = equal_shares(before);
  const Shares& shares = plan.shares.at(layer);
  const Windows& windows = measure.held_out->load[idx];
  const int num_live_ranks = measure.num_live_ranks;
  double now = 0.0, own = 0.0, best = 0.0;
  for (const std::vector<double>& load : windows) {
    now += imbalance_ratio(before, load, equal, num_live_ranks);
    own += imbalance_ratio(placement, load, shares, num_live_ranks);
    best += imbalance_ratio(placement, load, resplit(placement, load), num_live_ranks);
  }
  figures->imbalance_now_held_out = now / static_cast<double>(windows.size());
  figures->imbalance_held_out = own / static_cast<double>(windows.size());
  figures->imbalance_held_out_resplit = best / static_cast<double>(windows.size());
}

Figures judge_layer(const Measure& measure, size_t idx, const PlannedModel& plan) {
  const int layer = measure.load->layers[idx];
  const std::vector<double>& load = measure.load->load[idx];
  const Placement& before = measure.before->layers.at(layer);
  const Placement& placement = plan.placement.layers.at(layer);
  const auto imbalance_of = [&](const Placement& each, const Shares& shares) {
    return imbalance_ratio(each, load, shares, measure.num_live_ranks);
  };
  Figures figures;
  figures.imbalance_now = imbalance_of(before, equal_shares(before));
  figures.imbalance_equal = imbalance_of(placement, equal_shares(placement));
  // The best shares, not the plan's: all planners are compared by what their placement allows.
  figures.imbalance_weighted = imbalance_of(placement, resplit(placement, load));
  figures.lower_bound = measure.bounds[idx];
  figures.moves = count_new_pairs(before, placement);
  if (measure.held_out != nullptr) judge_held_out(measure, idx, plan, &figures);
  return figures;
}

Figures mean_of(std::span<const Figures> layers) {
  Figures mean;
  const double weight = 1.0 / static_cast<double>(layers.size());
  const auto add = [weight](std::optional<double>* sum, const std::optional<double>& value) {
    if (value) *sum = sum->value_or(0.0) + weight * *value;
  };
  for (const Figures& layer : layers) {
    mean.imbalance_now += weight * layer.imbalance_now;
    mean.imbalance_equal += weight * layer.imbalance_equal;
    mean.imbalance_weighted += weight * layer.imbalance_weighted;
    mean.lower_bound += weight * layer.lower_bound;
    mean.moves += weight * layer.moves;
    add(&mean.imbalance_now_held_out, layer.imbalance_now_held_out);
    add(&mean.imbalance_held_out, layer.imbalance_held_out);
    add(&mean.imbalance_held_out_resplit, layer.imbalance_held_out_resplit);
  }
  return mean;
}

// A rank stores an expert's weights once per slot, but copies them to itself at no cost in the
// count of moves: sets, not multisets.
std::set<int32_t> distinct_experts(const Placement& placement, int rank) {
  const auto experts = placement.experts_of_rank(rank);
  std::set<int32_t> distinct(experts.begin(), experts.end());
  distinct.erase(kUnusedSlot);
  return distinct;
}

}  // namespace

ModelPlacement default_model_placement(const ModelLoad& load, int ep_size) {
  ModelPlacement model;
  model.num_slots = (load.num_experts + ep_size - 1) / ep_size * ep_size;
  const Result<Placement> placement = default_placement(load.num_experts, ep_size, model.num_slots);
  WIDEEP_CHECK(placement.ok());
  for (int layer : load.layers) model.layers[layer] = *placement;
  return model;
}

int count_new_pairs(const Placement& before, const Placement& after) {
  int moves = 0;
  for (int rank = 0; rank < after.ep_size; ++rank) {
    const std::set<int32_t> had = distinct_experts(before, rank);
    for (int32_t expert : distinct_experts(after, rank)) moves += had.contains(expert) ? 0 : 1;
  }
  return moves;
}

bool has_two_replicas_on_a_rank(const Placement& placement) {
  for (int rank = 0; rank < placement.ep_size; ++rank) {
    const auto experts = placement.experts_of_rank(rank);
    const auto unused =
        static_cast<size_t>(std::count(experts.begin(), experts.end(), kUnusedSlot));
    if (distinct_experts(placement, rank).size() < experts.size() - unused) return true;
  }
  return false;
}

std::vector<double> lower_bounds(const ModelLoad& load, const PlanShape& shape, Split split) {
  std::vector<double> bounds;
  for (const auto& layer : load.load) bounds.push_back(imbalance_lower_bound(layer, shape, split));
  return bounds;
}

PlanShape effective_shape(std::string_view planner, PlanShape shape) {
  if (planner == "trt") shape.num_nodes = shape.num_groups = 1;
  return shape;
}

Assessment assess(const Measure& measure, const PlannedModel& plan) {
  WIDEEP_CHECK(measure.bounds.size() == measure.load->layers.size());
  Assessment assessment;
  for (size_t i = 0; i < measure.load->layers.size(); ++i) {
    assessment.layers.push_back(judge_layer(measure, i, plan));
  }
  assessment.mean = mean_of(assessment.layers);
  return assessment;
}

}  // namespace wideep::balance
