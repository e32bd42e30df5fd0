// SPDX-License-Identifier: Apache-2.0
//
// Was a rebalance worth its bytes? From recorded load, window after window: experts are moved after
// each window as the repairer plans by it, and the next window, which the plan has not seen, says
// what that saves; the links say what the bytes take.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/hardware.h"
#include "model/config/config.h"
#include "plan/windowed_load.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::advise {

struct RebalanceOptions {
  int ep = 1;
  int num_slots = 0;        // of a layer
  double tokens = 0.0;      // of all ranks in an iteration
  double tolerance = 0.01;  // imbalance ratio at which moving stops
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
};

// One window, and the rebalance before it.
struct Rebalance {
  int window = 0;              // 1, 2, …
  int64_t moves = 0;           // experts copied, over all layers
  double busiest_bytes = 0.0;  // that the rank with the most copies receives
  // Means over layers, with the shares that are best for the window: of the placement before, and
  // after.
  double imbalance_kept = 0.0, imbalance_moved = 0.0;
  // Seconds of all layers' experts in an iteration; never: with the first placement.
  double experts_kept = 0.0, experts_moved = 0.0, experts_never = 0.0;

  double saved_of_iteration() const { return experts_kept - experts_moved; }
};

// How long the bytes keep a link of the busiest rank.
struct MoveLink {
  std::string name;
  double bandwidth = 0.0;  // bytes per second

  double seconds(const Rebalance& rebalance) const { return rebalance.busiest_bytes / bandwidth; }
};

struct Rebalances {
  std::vector<Rebalance> steps;
  std::vector<MoveLink> links;  // over which experts may come
};

// windows: of the model's MoE layers, at least two. The first placement has
// experts in their order, so that the first rebalance is that of a server that starts.
// Errors (invalid input): fewer windows; other experts than the model's; a shape that the planner
// cannot serve; hardware without products of the format.
Result<Rebalances> replay_rebalances(const cost::Hardware& hardware,
                                     const model::ModelConfig& config,
                                     const balance::WindowedLoad& windows,
                                     const RebalanceOptions& options);

// Experts that each rank receives if its slots change so, [ranks].
std::vector<int64_t> copies_of_ranks(const balance::Placement& kept,
                                     const balance::Placement& moved);

// Iterations after which the time saved is what the link was busy for; negative: never.
double iterations_until_paid(const Rebalance& rebalance, const MoveLink& link);

}  // namespace wideep::advise
