// SPDX-License-Identifier: Apache-2.0
//
// What a MoE layer is given and what it reports: its weights, one call of it, and the record that
// an observer gets.
//
// Thread safety: plain values; an observer is called on the thread of the rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/row_noise.h"
#include "weights/expert_record.h"

namespace wideep::model {

// The weights of a MoE layer that every rank has.
struct MoeWeights {
  weights::Matrix router;          // [num_experts, hidden], always float32
  std::vector<float> router_bias;  // [num_experts]; DeepSeek only
  weights::MlpRecord shared;       // empty without shared expert
  bool has_shared() const { return !shared.empty(); }
};

// One MoE layer of one iteration.
struct MoeCall {
  int layer = 0;
  int64_t iteration = 0;
  int num_tokens = 0;                        // of this rank
  std::span<const int32_t> tokens_of_ranks;  // [ep_size]; empty: see Batch
  const float* h = nullptr;                  // [num_tokens, hidden], the normalised input
  float* x = nullptr;                        // [num_tokens, hidden], to which the output is added
  // The tokens whose output is added, ascending; empty optional: all of them. The others are routed
  // and reported as ever, but not sent. Ranks need not know which tokens the others want.
  std::optional<std::span<const int32_t>> wanted;
  // The shared expert's output for these tokens, [wanted tokens, hidden], where the caller has it.
  const float* shared = nullptr;
};

// What one MoE layer of one iteration did on this rank, all chunks together. Spans are valid during
// MoeObserver::on_layer.
struct MoeLayerRecord {
  int layer = 0;
  std::span<const int32_t> experts;       // [num_tokens, top_k] chosen experts, top-k order
  std::span<const int32_t> counts;        // [num_experts] tokens of this rank per expert
  std::span<const int32_t> group_counts;  // [num_experts] the same, summed over all ranks
  // [ep_size] (token, expert) pairs for each rank, of all tokens, wanted or not.
  std::span<const int32_t> sent_entries;
  int64_t experts_cpu_ns = 0;  // critical processor time of computing this rank's experts
  // With MoeOptions::measure_noise: what coding this rank's rows, and its experts' results, cost.
  RowNoise dispatched, returned;
};

class MoeObserver {
 public:
  virtual ~MoeObserver() = default;
  // A MoE layer has run.
  virtual void on_layer(const MoeLayerRecord& record) = 0;
};

}  // namespace wideep::model
