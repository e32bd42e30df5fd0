// SPDX-License-Identifier: Apache-2.0
//
// Which experts the tokens of a MoE layer go to, with which weights, and which of the tokens are to
// be computed (MoeCall::wanted).
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ep/buffer_layout.h"
#include "ep/chunks.h"
#include "model/compute.h"
#include "model/config.h"
#include "model/moe_call.h"
#include "model/perfect_router.h"

namespace wideep::model {

class MoeRouting {
 public:
  // perfect: experts are chosen by perfect_router.h, as rank `rank` of the shape.
  // config outlives the routing.
  MoeRouting(const ModelConfig& config, const ep::DispatchShape& shape, int rank, bool perfect);

  // Chooses the experts of all of the call's tokens, in float32 whatever the model's precision.
  void route(const Compute& compute, const MoeWeights& weights, const MoeCall& call);

  // Everything else is of the tokens that were routed last.
  // The chosen experts: of all tokens, and of some of them, [tokens, top_k] in top-k order.
  std::span<const int32_t> experts() const { return experts_; }
  std::span<const int32_t> experts_of(ep::TokenRange tokens) const;

  // The tokens to compute, ascending.
  std::span<const int32_t> wanted() const { return wanted_; }
  // Which of wanted() are among these tokens; and the expert weights of some of wanted(), [size,
  // top_k].
  ep::TokenRange wanted_of(ep::TokenRange tokens) const;
  std::span<const float> weights_of(ep::TokenRange wanted) const;

 private:
  void choose_experts(const Compute& compute, const MoeWeights& weights, int num_tokens,
                      const float* logits);
  void keep_wanted(const MoeCall& call);

  const ModelConfig& config_;
  std::optional<PerfectRouter> perfect_router_;
  std::vector<int32_t> experts_;  // [num_tokens, top_k]
  std::vector<int32_t> wanted_;
  std::vector<float> weights_;  // [wanted tokens, top_k]; during route of all tokens
  Scratch logits_, cast_;
};

}  // namespace wideep::model
