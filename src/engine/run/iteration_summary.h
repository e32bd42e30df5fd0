// SPDX-License-Identifier: Apache-2.0
//
// Iterations of all ranks together: the load of each rank, its imbalance, and the critical path
// (engine/iteration_record.h).
//
// Thread safety: plain values and pure functions; the classes belong to one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "recordings/routing_log.h"
#include "run/event.h"
#include "run/run_plan.h"
#include "run/speculation_totals.h"

namespace wideep::run {

// Collects the records of all ranks for each iteration, or of those that are members then. The
// numbers of what it returns ascend: where all ranks have begun anew, from 0, it counts on.
class IterationAssembler {
 public:
  // start_ranks: the members of the first epoch; 0: all. next: the least number of the first
  // iteration.
  explicit IterationAssembler(int num_ranks, int start_ranks = 0, int64_t next = 0);

  // The iteration if this was the last missing record of it, else nullopt. An iteration that some
  // rank never reports is never returned. What a rank reports that is no member any more is left
  // out.
  std::optional<Iteration> add(int rank, engine::IterationRecord record);
  // Later records of this rank are of an epoch with these members. Returns whether it is the last
  // of them that has changed; then iterations of earlier epochs that are not complete are dropped.
  bool change(int rank, const MembersChanged& members);
  // The number of an iteration which the ranks call `iteration` now.
  int64_t number(int64_t iteration) const { return iteration + offset_; }
  // The least number of the next one.
  int64_t next() const { return next_; }

 private:
  struct Open {
    std::vector<engine::IterationRecord> ranks;  // [members]
    size_t num_reported = 0;
  };
  std::vector<uint32_t> epochs_;                       // [ranks]
  std::map<uint32_t, std::vector<int>> members_;       // by epoch
  std::map<std::pair<uint32_t, int64_t>, Open> open_;  // by epoch and iteration
  int64_t next_;
  int64_t offset_ = 0;
};

// One iteration, over all ranks.
struct IterationSummary {
  int64_t iteration = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  engine::QueueRecord queue;  // sums over ranks
  double wall_ms = 0.0;       // of the slowest rank; in a pipeline, stages add up
  double critical_path_ms = 0.0;
  double critical_path_experts_ms = 0.0;  // the part that depends on the balance of experts
  double mean_rank_ms = 0.0;  // processor time per rank: the critical path's lower bound
  double mean_experts_ms = 0.0;
  // [MoE layers, ascending][ranks of the stage] (token, expert) pairs that the rank computed; 0 for
  // ranks that were no members.
  std::vector<std::vector<int64_t>> received;
  // [ranks of the stage][ranks of the stage] pairs from a rank to a rank, over all MoE layers.
  std::vector<std::vector<int64_t>> sent;
  std::vector<double> imbalance_ratios;  // [MoE layers] max / mean − 1 of `received`
  std::vector<int64_t> rank_load;        // [ranks of the run] pairs over all MoE layers of the rank
  std::vector<int> members;              // the ranks that took part; empty: all
  // Mean over MoE layers of the imbalance ratio with experts in their initial slots; nullopt
  // without online balancing.
  std::optional<double> initial_imbalance;
  SpeculationTotals speculation;

  double imbalance_ratio() const;  // mean over layers; 0 if there are none
};
IterationSummary summarize(const Iteration& iteration, const ExpertRanks& experts);

// One MoE layer over a run.
struct LayerLoad {
  int layer = 0;
  std::vector<int64_t> received;  // [ranks of the stage] pairs that each rank computed
  // max / mean − 1 over ranks of the pairs received, averaged over iterations; iterations without
  // tokens count as balanced (TensorRT-LLM's definition).
  double imbalance_ratio = 0.0;
};

// Sums over the iterations of a run.
struct LoadTotals {
  int64_t num_iterations = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double critical_path_ms = 0.0;
  double critical_path_experts_ms = 0.0;
  double mean_rank_ms = 0.0;
  double mean_experts_ms = 0.0;
  std::vector<LayerLoad> layers;
  SpeculationTotals speculation;

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

// The iteration in the form of a routing log: the pairs sent from each rank to each rank; zeros of
// ranks that were no members.
recordings::RoutingLog::Iteration routing_log_entry(const Iteration& iteration,
                                                    const ExpertRanks& experts);

}  // namespace wideep::run
