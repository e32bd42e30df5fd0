// SPDX-License-Identifier: Apache-2.0
//
// What one iteration did on one rank, as the rank tells it to the parent process.
//
// Critical-path time: between two waits a group can only be as fast as its slowest rank. So the
// time of an iteration on as many cores as there are ranks is
//
//   Σ over MoE layers (max over ranks of `other` + max over ranks of `experts`)
//   + max over ranks of `tail`
//
// in thread CPU time, which does not grow when ranks share a core.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/queue_record.h"
#include "wideep/status.h"

namespace wideep::engine {

struct LayerRecord {
  int64_t other_cpu_ns = 0;  // from the end of the MoE layer before to this one's experts, and its
                             // shared expert and reduction
  int64_t experts_cpu_ns = 0;  // computing the rows this rank received
  std::vector<int32_t> sent;   // [ep_size] (token, expert) pairs sent to each rank
  // [num_experts] tokens of this rank per expert; empty unless asked for
  std::vector<int32_t> counts;
  // Of all ranks, had experts stayed where they began; negative: not told. With online balancing
  // the first rank of a stage tells it.
  float initial_imbalance = -1.0f;
};

struct IterationRecord {
  int64_t iteration = 0;
  // On the machine's monotonic clock, so that ranks of one machine can be compared: when the rank
  // began to decide what to compute, and when it had computed it.
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  QueueRecord queue;
  int64_t tail_cpu_ns = 0;  // after the last MoE layer: head, sampling
  int64_t wall_ns = 0;
  int64_t schedule_ns = 0;  // deciding what to compute, and taking in the tokens of earlier ones
  std::vector<LayerRecord> layers;  // MoE layers, ascending

  bool operator==(const IterationRecord&) const = default;
};
inline bool operator==(const LayerRecord& a, const LayerRecord& b) {
  return a.other_cpu_ns == b.other_cpu_ns && a.experts_cpu_ns == b.experts_cpu_ns &&
         a.sent == b.sent && a.counts == b.counts && a.initial_imbalance == b.initial_imbalance;
}

// Bytes for a pipe between processes of one build, and back.
std::string encode(const IterationRecord& record);
IterationRecord decode_iteration(std::string_view bytes);

}  // namespace wideep::engine
