// SPDX-License-Identifier: Apache-2.0
//
// What an iteration costs a rank of a real engine with experts, by the number of ranks: a small
// model of DeepSeek-V3's structure whose router follows a recorded load, on ranks that may
// outnumber the cores. Measured is processor time without waits, since ranks that take turns on a
// core make each other's wall time.
//
// What ranks compute is predicted by a machine's cost model (step_cost.h). What they do for each
// other is partly the same in every group and partly for each peer: a straight line over ranks,
// from groups small enough to be measured anywhere.
//
// Thread safety: one call at a time; each starts and ends its ranks.
#pragma once

#include <vector>

#include "cost/hardware.h"
#include "measure/predict/control_plane.h"
#include "model/config/config.h"
#include "plan/model_plan.h"
#include "run/event.h"
#include "run/run_view.h"

namespace wideep::measure {

// 256 experts, 8 of a token, of 4 groups out of 8; latent attention; a shared expert; a dense layer
// first. Narrow: 64 ranks of it take a few GB.
model::ModelConfig scaled_model();

// Of a recorded load as many layers as the model has, spread over all of it, as the model's.
// REQUIRES: the load has at least one layer with tokens, and the model's number of experts.
balance::ModelLoad scaled_load(const model::ModelConfig& config, const balance::ModelLoad& load);

struct EngineScaleOptions {
  int num_ranks = 2;
  int spare_slots = 32;  // of a layer, at least, beyond one for each expert
  bool planned = true;   // else experts are in their order
  int batch = 8;         // requests of a rank, a token of each in an iteration
  int repetitions = 4;   // of 13 iterations each, after one to warm up
};

// Seconds of processor time of a rank in one iteration.
struct RankParts {
  double attention = 0.0;  // with norms and router
  double dense = 0.0;      // dense and shared MLPs, embedding, LM head, sampling
  double experts = 0.0;
  double exchange = 0.0;  // counts, choice of slots, dispatch, combine; rows coded and summed
  double agree = 0.0;     // with all ranks, before the first layer

  double all() const { return attention + dense + experts + exchange + agree; }
  RankParts& operator+=(const RankParts& other);
  RankParts& operator*=(double factor);
};

struct EngineCost {
  int num_ranks = 0;
  int num_slots = 0;  // of a layer
  RankParts mean;     // over ranks, the median over iterations of each part
  // Medians over iterations: of the rank with the most of all; of the busiest in each layer.
  double busiest = 0.0;
  double busiest_experts = 0.0;
  double seconds = 0.0;    // of the whole, on this machine's cores
  int iterations = 0;      // measured
  double distance = 0.0;   // of the experts that were chosen from the load (load_distance)
  double imbalance = 0.0;  // of the rows of ranks, mean over layers and iterations
};

// load: of the model's layers. REQUIRES: the caller has started no other thread.
// Errors: a shape that the planner cannot serve; too little memory; a rank failed; interrupted.
Result<EngineCost> run_engine_scale(const model::ModelConfig& config,
                                    const balance::ModelLoad& load,
                                    const EngineScaleOptions& options, run::RunView& view);

// The part of the options' iteration that a rank computes, mean and busiest; exchange and agree are
// not in it. hardware: with calibrated kernels for bf16.
struct PredictedCompute {
  RankParts mean;
  double busiest_experts = 0.0;
};
Result<PredictedCompute> predict_compute(const cost::Hardware& hardware,
                                         const model::ModelConfig& config,
                                         const balance::ModelLoad& load,
                                         const EngineScaleOptions& options);

// Parts of one rank in an iteration. REQUIRES: the model's first layer is its only dense one.
RankParts parts_of_rank(const engine::IterationRecord& rank, const model::ModelConfig& config);

}  // namespace wideep::measure
