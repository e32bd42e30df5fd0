// SPDX-License-Identifier: Apache-2.0
//
// The advisor: weighs layouts of a model on a machine for a workload, and recommends one.
//
// In the steady state a batch of b requests generates b tokens in an iteration, and b · isl / osl
// prompt tokens arrive beside them, in chunks of max_num_tokens. The time between two tokens of a
// request is the mean time of an iteration, with and without a chunk; the time to the first token
// is what its prompt's chunks take, after half an iteration of waiting.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "balance/model_plan.h"
#include "model/config.h"
#include "simulate/serving_simulation.h"
#include "simulate/step_cost.h"
#include "simulate/workload.h"
#include "wideep/status.h"

namespace wideep::simulate {

// What serving in a layout, with a number of requests in each batch, is predicted to be like.
struct Candidate {
  Layout layout;
  int batch = 0;                  // requests of a batch
  StepTime step;                  // of an iteration without prompt tokens
  double tpot = 0.0, ttft = 0.0;  // seconds
  double tokens_per_rank = 0.0;   // generated per second
  double tokens_per_user = 0.0;   // generated per second
  double memory = 0.0;            // bytes of a rank, with the cache of its batch
  double imbalance = 0.0;         // mean over layers, of mean rows
  double error = 0.0;             // of the prediction: a share of the time

  double requests() const { return static_cast<double>(batch) * layout.num_batches(); }
};

struct Advice {
  int num_layouts = 0;            // weighed, with every batch
  int num_too_large = 0;          // of them, without room for a request
  std::vector<Candidate> pareto;  // none is better in both tokens_per_rank and tokens_per_user
  std::optional<Candidate> best;  // that meets the workload's limits
  std::string nearest;            // if none does: what is possible
  std::vector<std::string> reasons;
};

// load: of the config's MoE layers, any unit; `planned` is what placements are made for, and may be
// the same. Errors (invalid input): the load has other layers or experts than the model; no layout
// fits the memory.
Result<Advice> advise(const Hardware& hardware, const model::ModelConfig& config,
                      const balance::ModelLoad& planned, const balance::ModelLoad& load,
                      const Workload& workload, const Choices& choices);

// The cost of iterations in a layout. Errors (invalid input): as advise().
Result<StepCost> step_cost(const Hardware& hardware, const model::ModelConfig& config,
                           const balance::ModelLoad& planned, const balance::ModelLoad& load,
                           const Layout& layout, const Choices& choices);

// Serves `num_requests` requests of the workload in simulated time, with the candidate's limits: as
// many at the same time as it has, or arriving at the workload's rate (a Poisson process).
// Errors (invalid input): a request does not fit into the cache.
Result<SimulatedServing> simulate_candidate(const Candidate& candidate, const StepCost& cost,
                                            const Workload& workload, const Choices& choices,
                                            int num_requests);

// Bytes of a rank without its cache, and of the cache of one token.
struct RankMemory {
  double weights = 0.0;
  double token = 0.0;
};
RankMemory memory_of(const model::ModelConfig& config, const Layout& layout);

}  // namespace wideep::simulate
