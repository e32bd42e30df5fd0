// SPDX-License-Identifier: Apache-2.0
//
// Expert statistics: how many tokens each rank sent to each expert, by iteration and MoE layer.
//
// Of a run with a load balancer there are two of them: what the router chose (counts of experts),
// and which replica each token went to (counts of slots, as TensorRT-LLM has them). Planners need
// the first; the second say how even the run was.
//
// Thread safety: plain values; all functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wideep/status.h"

namespace wideep::recordings {

// The most tokens of all counts together: a double is exact up to here.
inline constexpr int64_t kMaxTokens = int64_t{1} << 53;

// Of counts of slots: where the slots lie.
struct SlotLayout {
  int num_ranks = 0;            // have equally many slots each, in order
  int borrowed_per_rank = 0;    // the last slots of each: for experts whose weights lie elsewhere
  int num_logical_experts = 0;  // that the router chose among

  bool operator==(const SlotLayout&) const = default;
};

struct ExpertStatistics {
  int num_experts = 0;          // E; of counts of slots their number, over all ranks
  int top_k = 0;                // experts per token; 0: unknown
  int ep_size = 1;              // R, the ranks that recorded
  int iter_start = 0;           // the first recorded iteration
  int iter_stop = 0;            // one past the last
  std::vector<int> layers;      // the model's layer indices, ascending
  std::vector<int64_t> counts;  // [iteration, layer, rank, expert] tokens; ≥ 0
  // num_experts is the largest id + 1, of a file that does not say it.
  bool guessed_experts = false;
  std::optional<SlotLayout> slots = {};  // nullopt: counts are of experts

  int num_iterations() const { return iter_stop - iter_start; }
  int num_layers() const { return static_cast<int>(layers.size()); }

  // One rank's row, [E]. Indices count from 0: iteration_idx 0 is iter_start, layer_idx 0 is
  // layers[0].
  std::span<const int64_t> row(int iteration_idx, int layer_idx, int rank) const;
  std::span<int64_t> row(int iteration_idx, int layer_idx, int rank);

  // Tokens per expert summed over ranks, [E].
  std::vector<int64_t> iteration_load(int iteration_idx, int layer_idx) const;
  // The same summed over iterations too, [E]: the load that a planner balances.
  std::vector<int64_t> layer_load(int layer_idx) const;

  bool operator==(const ExpertStatistics&) const = default;

 private:
  size_t offset(int iteration_idx, int layer_idx, int rank) const;
};

// Checks what users of statistics rely on: as many counts as the sizes say, at least one iteration,
// layers ascending, no count below 0, and a sum from 1 to kMaxTokens. All that readers return
// keeps it. Errors (invalid input): what, expected and found.
Status check_statistics(const ExpertStatistics& statistics);

// The part with iterations start ≤ i < stop; nullopt keeps that end as recorded. Errors (invalid
// input): an empty range, or one outside the recorded iterations.
Result<ExpertStatistics> select_iterations(const ExpertStatistics& statistics,
                                           std::optional<int> start, std::optional<int> stop);

}  // namespace wideep::recordings
