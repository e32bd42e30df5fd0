// SPDX-License-Identifier: Apache-2.0
//
// The routing of the tokens of a MoE layer: their experts, the experts' weights, and which tokens
// are computed at all (MoeCall::wanted).
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ep/buffer_layout.h"
#include "ep/chunks.h"
#include "model/config/config.h"
#include "model/parts/compute.h"
#include "model/parts/moe_call.h"
#include "model/parts/perfect_router.h"

namespace wideep::model {

class MoeRouting {
 public:
  // rank: this rank within the shape. perfect: the experts are chosen by perfect_router.h.
  // config outlives the routing.
  MoeRouting(const ModelConfig& config, const ep::DispatchShape& shape, int rank, bool perfect);

  // Chooses the experts of all tokens of the call. The router always computes in float32.
  void route(const Compute& compute, const MoeWeights& weights, const MoeCall& call);

  // The functions below return results of the last route().

  // The chosen experts of all tokens, or of a range, [tokens, top_k] in top-k order.
  std::span<const int32_t> experts() const { return experts_; }
  std::span<const int32_t> experts_of(ep::TokenRange tokens) const;

  // The tokens to compute, ascending.
  std::span<const int32_t> wanted() const { return wanted_; }
  // The range of indices in wanted() whose tokens lie in `tokens`.
  ep::TokenRange wanted_of(ep::TokenRange tokens) const;
  // The expert weights of a range of wanted(), [size, top_k].
  std::span<const float> weights_of(ep::TokenRange wanted) const;
  // With weights on the input: the factors of the rows of wanted(), whose results have weight 1.
  // Else empty.
  std::span<const float> input_weights() const { return input_weights_; }

 private:
  void choose_experts(const Compute& compute, const MoeWeights& weights, const MoeCall& call,
                      const float* logits);
  // By the factors of the experts that the token has chosen.
  void scale_weights(const std::vector<float>& scale, int64_t token);
  void keep_wanted(const MoeCall& call);
  void move_to_input();

  const ModelConfig& config_;
  std::optional<PerfectRouter> perfect_router_;
  std::vector<int32_t> experts_;  // [num_tokens, top_k]
  std::vector<int32_t> wanted_;
  std::vector<float> weights_;        // [wanted tokens, top_k]; during route() of all tokens
  std::vector<float> input_weights_;  // [wanted tokens]; see input_weights()
  Scratch logits_, cast_;
};

}  // namespace wideep::model
