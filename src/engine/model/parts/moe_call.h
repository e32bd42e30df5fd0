// SPDX-License-Identifier: Apache-2.0
//
// The inputs and outputs of a MoE layer: its weights, the arguments of one call, and the record
// that an observer gets.
//
// Thread safety: plain values; an observer is called on the thread of the rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/parts/norms.h"
#include "model/parts/row_noise.h"
#include "weights/expert_record.h"

namespace wideep::model {

// The weights of a MoE layer outside the routed experts; every rank has them.
struct MoeWeights {
  weights::Matrix router;          // [num_experts, hidden], always float32
  std::vector<float> logit_bias;   // [num_experts] of the router's product; empty: none
  std::vector<float> router_bias;  // [num_experts] of the selection only; empty: none
  // [vocab, top_k] the experts of each token id; empty: scores choose them.
  std::vector<int32_t> experts_of_ids;
  // [hidden] of the norm by which the router takes the residual stream; empty: it takes what the
  // experts take.
  StreamNorm router_norm;
  std::vector<float> expert_scale;  // [num_experts] of the chosen experts' weights; empty: none
  // Latent experts: into their rows, [latent, hidden], and out of the sum of their results, [hidden,
  // latent]; else empty.
  weights::Matrix latent_in, latent_out;
  weights::MlpRecord shared;    // empty without shared expert
  weights::Matrix shared_gate;  // [1, hidden], float32; empty without a gate
  bool has_latent() const { return latent_in.bytes.size() > 0; }
  bool has_shared() const { return !shared.empty(); }
  bool has_shared_gate() const { return shared_gate.bytes.size() > 0; }
};

// The MoE layer that follows, for reading ahead where not all experts are in memory.
struct NextMoe {
  int layer = 0;
  const MoeWeights* weights = nullptr;  // null: none follows
  // [num_tokens, hidden] what its router would get if nothing came before it any more.
  const float* h = nullptr;
  const int32_t* ids = nullptr;                    // as MoeCall::ids
  std::optional<std::span<const int32_t>> wanted;  // as MoeCall::wanted
};

// One MoE layer of one iteration.
struct MoeCall {
  int layer = 0;
  int64_t iteration = 0;
  int num_tokens = 0;                        // of this rank
  std::span<const int32_t> tokens_of_ranks;  // [ep_size]; may be empty: see Batch
  const float* h = nullptr;                  // [num_tokens, hidden] the normalised input
  const float* router_h = nullptr;           // [num_tokens, hidden] the router's; null: h
  const int32_t* ids = nullptr;              // [num_tokens] of the tokens
  float* x = nullptr;                        // [num_tokens, hidden] the output is added to it
  // The tokens whose output is needed, ascending; nullopt: all. The others are routed and reported
  // too, but not sent to experts. Ranks need not know the wanted tokens of other ranks.
  std::optional<std::span<const int32_t>> wanted;
  // The shared expert's output, [wanted tokens, hidden], if the caller has computed it; before its
  // gate.
  const float* shared = nullptr;
  NextMoe next = {};
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
  // With MoeOptions::count_slots: [ep::DispatchShape::num_slots()] this rank's tokens per slot, as
  // messages number them; else empty.
  std::span<const int32_t> slot_counts;
  int64_t experts_cpu_ns = 0;  // critical processor time of computing this rank's experts
  // The same, without waits, of the shared expert; and of all else after the router: coding rows,
  // counts, choice of slots, dispatch, combine, the sum of results.
  int64_t shared_cpu_ns = 0;
  int64_t exchange_cpu_ns = 0;
  int64_t experts_rows = 0;  // rows that they have computed, one for each (token, expert)
  // With MoeOptions::measure_noise: the coding noise of this rank's rows, and of its experts'
  // results.
  RowNoise dispatched, returned;
};

class MoeObserver {
 public:
  virtual ~MoeObserver() = default;
  // Called after each MoE layer.
  virtual void on_layer(const MoeLayerRecord& record) = 0;
};

}  // namespace wideep::model
