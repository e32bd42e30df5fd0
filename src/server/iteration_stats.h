// SPDX-License-Identifier: Apache-2.0
//
// Puts what the ranks tell of an iteration together: who received how much, how uneven it was, who
// ran and waited.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/iteration_record.h"
#include "engine/serve.h"

namespace wideep::server {

// One iteration of all ranks.
struct IterationStats {
  int64_t iteration = 0;
  double time = 0.0;          // when all had told, seconds since 1970
  double wall_seconds = 0.0;  // of the slowest rank
  int64_t context_tokens = 0;
  int64_t generated_tokens = 0;
  engine::QueueRecord queue;  // as it began: sums over ranks that have requests of their own
  // (token, expert) pairs that each rank computed, summed over its MoE layers.
  std::vector<int64_t> rank_load;
  // max / mean − 1 over the ranks of a stage, mean over MoE layers; and what it would have been had
  // experts stayed where they began (nothing: they have).
  double imbalance = 0.0;
  std::optional<double> initial_imbalance;
  // [rank][its MoE layer][num_experts]; empty: not recorded.
  std::vector<std::vector<std::vector<int32_t>>> expert_counts;
};

class IterationCollector {
 public:
  explicit IterationCollector(engine::ExpertRanks ranks) : ranks_(std::move(ranks)) {}

  // The iteration, with what its last rank tells.
  std::optional<IterationStats> add(int rank, engine::IterationRecord record);

 private:
  struct Open {
    IterationStats stats;
    int told = 0;
    // [stage · layer of it][rank of the stage] pairs received
    std::map<std::pair<int, size_t>, std::vector<double>> received;
    double initial_sum = 0.0;
    int num_initial = 0;
  };
  void take_layers(int rank, engine::IterationRecord& record, Open& open) const;
  static IterationStats close(Open open);

  engine::ExpertRanks ranks_;
  std::map<int64_t, Open> open_;
};

}  // namespace wideep::server
