// SPDX-License-Identifier: Apache-2.0
//
// Puts the iteration records of all ranks together: who received how much, how uneven it was, and
// the critical path. Lives in the parent process. Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "balance/routing_log.h"
#include "engine/iteration_record.h"

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

class LoadCollector {
 public:
  // keep_log: also keep every iteration for a routing log.
  LoadCollector(int ep_size, const std::vector<int>& moe_layers, bool keep_log);

  void add(int rank, IterationRecord record);

  // Of the iterations that all ranks have reported.
  LoadTotals totals() const;
  const std::vector<balance::RoutingLog::Iteration>& log() const { return log_; }

 private:
  void fold(const std::vector<IterationRecord>& ranks);
  balance::RoutingLog::Iteration log_entry(const std::vector<IterationRecord>& ranks) const;

  int ep_size_;
  bool keep_log_;
  LoadTotals sums_;  // imbalance_ratio of layers: sums over iterations
  std::map<int64_t, std::vector<IterationRecord>> open_;  // not yet reported by all ranks
  std::map<int64_t, int> reported_;
  std::vector<balance::RoutingLog::Iteration> log_;
};

}  // namespace wideep::engine
