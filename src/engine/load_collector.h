// SPDX-License-Identifier: Apache-2.0
//
// Puts the iteration records of all ranks together: who received how much, how uneven it was, and
// the critical path. Lives in the parent process. Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/iteration_record.h"
#include "recordings/routing_log.h"

namespace wideep::engine {

// Of one MoE layer over a run.
struct LayerLoad {
  int layer = 0;
  std::vector<int64_t> received;  // [ep_size] (token, expert) pairs that each rank computed
  // max / mean − 1 over ranks of the pairs received, averaged over iterations; iterations without
  // tokens count as balanced (TensorRT-LLM's definition).
  double imbalance_ratio = 0.0;
};

struct LoadTotals {
  int64_t num_iterations = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double critical_path_ms = 0.0;          // see iteration_record.h
  double critical_path_experts_ms = 0.0;  // the part of it that balance decides
  double mean_rank_ms = 0.0;  // processor time per rank: the critical path's lower bound
  double mean_experts_ms = 0.0;
  std::vector<LayerLoad> layers;

  double imbalance_ratio() const;  // mean over layers
};

// One iteration of all ranks.
struct IterationSummary {
  int64_t iteration = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  QueueRecord queue;     // sums
  double wall_ms = 0.0;  // of the slowest rank; of a pipeline, from its first stage to its last
  double critical_path_ms = 0.0;
  double critical_path_experts_ms = 0.0;
  double mean_rank_ms = 0.0;
  double mean_experts_ms = 0.0;
  std::vector<double> imbalance_ratios;  // of each MoE layer

  double imbalance_ratio() const;  // mean over layers
};

class LoadCollector {
 public:
  // moe_layers: of each pipeline stage, whose ranks are ep_size neighbours. keep_log: also keep
  // every iteration for a routing log.
  LoadCollector(int ep_size, const std::vector<std::vector<int>>& moe_layers, bool keep_log);

  // rank: of the world. What the ranks of a pipeline tell of an iteration is put together. The
  // iteration, where this was the last word on it.
  std::optional<IterationSummary> add(int rank, IterationRecord record);

  // Of the iterations that all ranks have reported.
  LoadTotals totals() const;
  const std::vector<recordings::RoutingLog::Iteration>& log() const { return log_; }

 private:
  IterationSummary fold(const std::vector<IterationRecord>& ranks);
  void add_to_sums(const IterationSummary& summary);
  double add_received(size_t layer, const std::vector<IterationRecord>& ranks);
  recordings::RoutingLog::Iteration log_entry(const std::vector<IterationRecord>& ranks) const;

  int ep_size_;
  std::vector<size_t> first_layers_;  // of each stage, among all MoE layers
  bool keep_log_;
  LoadTotals sums_;  // imbalance_ratio of layers: sums over iterations
  std::map<int64_t, std::vector<IterationRecord>> open_;  // [ep_size] all stages
  std::map<int64_t, int> reported_;
  std::vector<recordings::RoutingLog::Iteration> log_;
};

}  // namespace wideep::engine
