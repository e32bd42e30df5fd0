// SPDX-License-Identifier: Apache-2.0
//
// Questions about a model and its load that need no layout to be chosen.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "advise/advise.h"
#include "cost/hardware.h"
#include "cost/layout.h"
#include "model/config/config.h"
#include "plan/model_plan.h"
#include "wideep/status.h"

namespace wideep::advise {

// How many experts a rank can receive in an iteration without making it longer, if a link's
// bandwidth is free beside the iteration's own traffic and all ranks that share the link receive as
// many (TensorRT-LLM's blog on wide expert parallelism, part 1, figure 15).
struct MovableExperts {
  std::string link;
  double bandwidth = 0.0;          // bytes per second of a rank
  std::vector<double> of_seconds;  // [iteration times] experts
};
double bytes_of_expert(const model::ModelConfig& config, kernels::WeightFormat format);
std::vector<MovableExperts> movable_experts(const cost::Hardware& hardware,
                                            const model::ModelConfig& config,
                                            kernels::WeightFormat format,
                                            const std::vector<double>& iteration_seconds);

// The imbalance ratio of a load, by the number of ranks: with as few slots as hold all experts, in
// their order and placed; and with `redundant` slots more on every rank, by the planner deepseek
// (EPLB, equal shares) and by ours (weighted shares). Placements are made for `planned` and judged
// by `judged`, whose shares each iteration takes. Means over layers.
struct ImbalanceAt {
  int ep = 1;
  double in_order = 0.0, placed = 0.0, eplb = 0.0, replicated = 0.0;
  int num_slots = 0;  // of the last two
};
// REQUIRES: both loads have the same layers and experts; ranks are at most as many as experts.
Result<std::vector<ImbalanceAt>> imbalance_by_ranks(const balance::ModelLoad& planned,
                                                    const balance::ModelLoad& judged,
                                                    const std::vector<int>& ranks, int redundant);

// What the weighed layouts with as many ranks that share the experts can do.
struct EpSize {
  int ep = 1;
  Candidate fastest;              // the shortest time between tokens, whatever the limits
  std::optional<Candidate> best;  // within the workload's limits
};
// By EP size, ascending. REQUIRES: advice has candidates.
std::vector<EpSize> by_ep_size(const Advice& advice, const Workload& workload);

}  // namespace wideep::advise
