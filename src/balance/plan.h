// SPDX-License-Identifier: Apache-2.0
//
// What every planner is asked, and how an expert's tokens are split over its replicas.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balance/placement.h"
#include "wideep/status.h"

namespace wideep::balance {

// How an engine divides an expert's tokens among its r replicas.
enum class Split {
  kEqual,     // load / r each: TRT, vLLM, DeepSeek
  kWeighted,  // by shares that the planner chooses
};

// The numbers a placement has to fit. Every rank has S / R slots; node n of N owns the ranks
// [n·R/N, (n + 1)·R/N); group g of G owns the experts [g·E/G, (g + 1)·E/G).
struct PlanShape {
  int num_experts = 0;  // E
  int ep_size = 1;      // R
  int num_slots = 0;    // S, a multiple of R, ≥ E
  int num_nodes = 1;    // N, divides R
  int num_groups = 1;   // G, divides E; a multiple of N when experts stay with their group's node

  int slots_per_rank() const { return num_slots / ep_size; }
  bool operator==(const PlanShape&) const = default;
};

// Errors (invalid input): as check_slot_counts; nodes that do not divide the ranks or groups that
// do not divide the experts.
Status check_plan_shape(const PlanShape& shape);

// What planners and re-split need of a load [layers, num_experts]: finite tokens, not negative, and
// with a finite sum. Errors (invalid input) name layer and expert.
Status check_load(std::span<const double> load, int num_experts);

// The share of its expert's tokens that each slot receives, [S], ≥ 0; the shares of an expert's
// slots sum to 1.
using Shares = std::vector<double>;

// 1 / r for a slot whose expert has r replicas.
Shares equal_shares(const Placement& placement);

// Tokens of each rank, [R], for expert_load [E] split by shares [S].
std::vector<double> rank_loads(const Placement& placement, std::span<const double> expert_load,
                               std::span<const double> shares);

// max / mean − 1 of rank loads; 0 where there is no load at all.
double imbalance_ratio(std::span<const double> loads);

}  // namespace wideep::balance
