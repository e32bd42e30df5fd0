// SPDX-License-Identifier: Apache-2.0
//
// Iterations of all ranks together: who received how much, how uneven it was, and the critical path
// (engine/iteration_record.h).
//
// Thread safety: plain values and pure functions; the classes belong to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "recordings/routing_log.h"
#include "run/event.h"
#include "run/run_plan.h"

namespace wideep::run {

// Puts the records of all ranks together.
class IterationAssembler {
 public:
  explicit IterationAssembler(int num_ranks) : num_ranks_(num_ranks) {}

  // The iteration, where this was the last rank's record of it. Iterations that a rank never
  // reports are never returned.
  std::optional<Iteration> add(int rank, engine::IterationRecord record);

 private:
  struct Open {
    std::vector<engine::IterationRecord> ranks;
    int num_reported = 0;
  };
  int num_ranks_;
  std::map<int64_t, Open> open_;
};

// One iteration of all ranks.
struct IterationSummary {
  int64_t iteration = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  engine::QueueRecord queue;  // sums over ranks
  double wall_ms = 0.0;  // of the slowest rank; of a pipeline, from its first stage to its last
  double critical_path_ms = 0.0;
  double critical_path_experts_ms = 0.0;  // the part of it that balance decides
  double mean_rank_ms = 0.0;  // processor time per rank: the critical path's lower bound
  double mean_experts_ms = 0.0;
  // Of all MoE layers, ascending: (token, expert) pairs that each rank of the stage has computed,
  // and max / mean − 1 of them.
  std::vector<std::vector<int64_t>> received;
  std::vector<double> imbalance_ratios;
  // Of every rank of the run: the pairs of all its MoE layers.
  std::vector<int64_t> rank_load;
  // Mean over MoE layers of what the imbalance would have been had experts stayed where they began;
  // nothing: they have.
  std::optional<double> initial_imbalance;

  double imbalance_ratio() const;  // mean over layers; 0 where there are none
};
IterationSummary summarize(const Iteration& iteration, const ExpertRanks& experts);

// Of one MoE layer over a run.
struct LayerLoad {
  int layer = 0;
  std::vector<int64_t> received;  // [ranks of the stage] pairs that each rank computed
  // max / mean − 1 over ranks of the pairs received, averaged over iterations; iterations without
  // tokens count as balanced (TensorRT-LLM's definition).
  double imbalance_ratio = 0.0;
};

// Of a run, its iterations summed.
struct LoadTotals {
  int64_t num_iterations = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double critical_path_ms = 0.0;
  double critical_path_experts_ms = 0.0;
  double mean_rank_ms = 0.0;
  double mean_experts_ms = 0.0;
  std::vector<LayerLoad> layers;

  double imbalance_ratio() const;  // mean over layers
};

class LoadSums {
 public:
  explicit LoadSums(const ExpertRanks& experts);
  void add(const IterationSummary& summary);
  LoadTotals totals() const;

 private:
  LoadTotals sums_;  // imbalance_ratio of layers: sums over iterations
};

// The iteration as a routing log has it: who sent what where.
recordings::RoutingLog::Iteration routing_log_entry(const Iteration& iteration,
                                                    const ExpertRanks& experts);

}  // namespace wideep::run
