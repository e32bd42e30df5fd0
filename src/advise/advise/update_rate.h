// SPDX-License-Identifier: Apache-2.0
//
// How many layers an iteration should update (layer_updates_per_iter of moe_load_balancer.yaml):
// what each rate costs and gives, by recorded load.
//
// Layers are updated in turns (online/layer_rota.h), so that a layer's placement is as old as a
// round of turns and the copying of its experts take. Windows of load follow each other: at its
// first turn in a window a layer moves experts as the repairer plans by the window before, and the
// window judges both the placement before the turn and the one after it, each for its time.
//
//   gives   the experts' time on the slowest rank, against the first placement, which is never left
//   costs   spare records on each rank; the time that copies take from an iteration. A device's
//           copies come over a link that is idle meanwhile, and only write to its memory. Cores and
//           the memory of a divisible machine are those that compute.
//
// A copy never stops an iteration: one that takes longer than a turn brings its layer later.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <string>
#include <vector>

#include "cost/hardware.h"
#include "cost/layout.h"
#include "model/config/config.h"
#include "plan/model_plan.h"
#include "plan/windowed_load.h"
#include "wideep/status.h"

namespace wideep::advise {

struct UpdateRateOptions {
  cost::Layout layout;
  double tokens = 0.0;             // of all ranks that share the experts, in an iteration
  double iteration_seconds = 0.0;  // without moves
  double spare_bytes = 0.0;        // of a rank that spare records may take
  double tolerance = 0.01;         // imbalance ratio at which moving stops
};

// Means over the iterations of all windows but the first.
struct UpdateRate {
  int rate = 0;              // layers of an iteration; 0: static
  double age = 0.0;          // iterations since the middle of the window that a placement follows
  double moves = 0.0;        // experts copied in an iteration, over all layers and ranks
  double bytes = 0.0;        // that the rank with the most copies receives in an iteration
  double link_share = 0.0;   // of the time that its link is busy
  double imbalance = 0.0;    // mean over layers
  double experts = 0.0;      // seconds of all layers' experts in an iteration
  double copying = 0.0;      // seconds that an iteration is longer
  double spare_bytes = 0.0;  // of a rank

  double seconds() const { return experts + copying; }
};

struct UpdateRates {
  std::vector<UpdateRate> rates;  // static first, then ascending; empty: nothing can be told
  int best = 0;                   // the recommended rate
  std::string reason;             // one line
};

// planned: what the first placement is planned for. windows: of the model's MoE layers. With one
// window, one rank that shares the experts or no MoE layer nothing can be told, and static is
// recommended. REQUIRES: hardware.supports(layout.format); positive tokens and iteration_seconds.
// Errors (invalid input): other experts or layers than the model's; a shape that the planner cannot
// serve.
Result<UpdateRates> weigh_update_rates(const cost::Hardware& hardware,
                                       const model::ModelConfig& config,
                                       const balance::ModelLoad& planned,
                                       const balance::WindowedLoad& windows,
                                       const UpdateRateOptions& options);

}  // namespace wideep::advise
