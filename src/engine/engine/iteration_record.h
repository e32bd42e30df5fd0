// SPDX-License-Identifier: Apache-2.0
//
// What one iteration did on one rank. Ranks report it to the process that started them.
//
// Critical-path time: between two waits a group is only as fast as its slowest rank. So, with one
// core per rank, an iteration takes
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

#include "engine/speculation/verified.h"
#include "schedule/queue_record.h"
#include "wideep/status.h"

namespace wideep::engine {

struct LayerRecord {
  // From the end of the previous MoE layer to the end of this one, without experts_cpu_ns.
  int64_t other_cpu_ns = 0;
  int64_t experts_cpu_ns = 0;  // computing the rows that this rank received
  // Of other_cpu_ns: the shared expert; coding rows, counts, choice of slots, dispatch and combine.
  int64_t shared_cpu_ns = 0;
  int64_t exchange_cpu_ns = 0;
  std::vector<int32_t> sent;  // [ep_size] (token, expert) pairs sent to each rank
  // [num_experts] tokens of this rank per expert; empty unless asked for
  std::vector<int32_t> counts;
  // [slots of the ranks that dispatch to each other] the same per slot (replica), as
  // ep::DispatchShape::num_slots(); empty unless asked for, and without a load balancer
  std::vector<int32_t> slot_counts;
  // The imbalance ratio over all ranks if experts were still in their initial slots; negative: not
  // reported. With online balancing the first rank of each stage reports it.
  float initial_imbalance = -1.0f;
};

struct IterationRecord {
  int64_t iteration = 0;
  // On the machine's monotonic clock, so that ranks of one machine can be compared.
  int64_t begin_ns = 0;  // before scheduling
  int64_t end_ns = 0;    // after sampling
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  QueueRecord queue;
  std::vector<Verified> verified;  // requests with drafts in the step
  Forecast forecast;               // of this step
  int64_t draft_bytes = 0;         // memory of the drafters' pools and texts
  bool gave_up_drafts = false;     // too few were right (acceptance_length_threshold)
  int64_t tail_cpu_ns = 0;         // after the last MoE layer: head, sampling
  int64_t agree_cpu_ns = 0;        // agreeing with the other ranks before the first layer
  int64_t wall_ns = 0;
  int64_t schedule_ns = 0;          // scheduling, and appending the tokens of earlier iterations
  std::vector<LayerRecord> layers;  // MoE layers, ascending
  bool records_experts = false;     // the rank was asked to (Reporter::record_experts)

  bool operator==(const IterationRecord&) const = default;
};
inline bool operator==(const LayerRecord& a, const LayerRecord& b) {
  return a.other_cpu_ns == b.other_cpu_ns && a.experts_cpu_ns == b.experts_cpu_ns &&
         a.shared_cpu_ns == b.shared_cpu_ns && a.exchange_cpu_ns == b.exchange_cpu_ns &&
         a.sent == b.sent && a.counts == b.counts && a.slot_counts == b.slot_counts &&
         a.initial_imbalance == b.initial_imbalance;
}

// To bytes for a pipe between processes of one build, and back.
std::string encode(const IterationRecord& record);
IterationRecord decode_iteration(std::string_view bytes);

}  // namespace wideep::engine
