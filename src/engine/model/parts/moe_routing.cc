// SPDX-License-Identifier: Apache-2.0
#include "model/parts/moe_routing.h"

#include <algorithm>
#include <numeric>

#include "base/trace.h"
#include "model/parts/router.h"

namespace wideep::model {

// For a perfect router, ranks that hold slices of the same experts count as one: num_owners().
MoeRouting::MoeRouting(const ModelConfig& config, const ep::DispatchShape& shape, int rank,
                       bool perfect)
    : config_(config) {
  if (!perfect) return;
  perfect_router_.emplace(config.routing, shape.num_owners(), rank % shape.num_owners());
}

void MoeRouting::route(const Compute& compute, const MoeWeights& weights, const MoeCall& call) {
  const base::TraceSpan span(base::Span::kRouter, call.layer);
  const RoutingConfig& routing = config_.routing;
  float* logits = logits_.get<float>(static_cast<size_t>(call.num_tokens) * routing.num_experts);
  const float* h = call.router_h != nullptr ? call.router_h : call.h;
  const SourceRows rows = float_rows(h, config_.hidden_size, call.num_tokens, config_.hidden_size);
  const kernels::PackedMatrix& router = weights.router.packed;
  const Product product{&router, logits, static_cast<size_t>(routing.num_experts),
                        all_panels(router),
                        weights.logit_bias.empty() ? nullptr : weights.logit_bias.data()};
  compute.matmul(compute.cast(router.shape, rows, cast_), std::span(&product, 1));
  choose_experts(compute, weights, call, logits);
  keep_wanted(call);
  if (config_.weight_on_input) move_to_input();
}

// There is one expert per token (RoutingMethod::kLlama4), so its weight is the row's factor.
void MoeRouting::move_to_input() {
  const auto count = static_cast<std::ptrdiff_t>(wanted_.size());
  input_weights_.assign(weights_.begin(), weights_.begin() + count);
  weights_.assign(wanted_.size(), 1.0f);
}

void MoeRouting::choose_experts(const Compute& compute, const MoeWeights& weights,
                                const MoeCall& call, const float* logits) {
  // One token takes a few microseconds.
  constexpr int64_t kTokensPerTask = 16;
  const RoutingConfig& routing = config_.routing;
  const int num_tokens = call.num_tokens;
  const auto count = static_cast<size_t>(num_tokens) * routing.top_k;
  const bool by_token = !weights.experts_of_ids.empty() && !perfect_router_;
  experts_.resize(count);
  weights_.resize(count);
  const float* bias = weights.router_bias.empty() ? nullptr : weights.router_bias.data();
  if (perfect_router_) {  // the real router was computed nevertheless, so that measured times hold
    logits = perfect_router_->logits(num_tokens);
    bias = perfect_router_->zero_bias();
  }
  compute.pool().parallel_for_ranges(num_tokens, kTokensPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const float* of_token = logits + token * routing.num_experts;
      int32_t* experts = experts_.data() + token * routing.top_k;
      float* shares = weights_.data() + token * routing.top_k;
      if (by_token) {
        std::copy_n(weights.experts_of_ids.data() + int64_t{call.ids[token]} * routing.top_k,
                    routing.top_k, experts);
        weigh_experts(routing, of_token, experts, shares);
      } else {
        select_experts(routing, of_token, bias, experts, shares);
      }
      if (!weights.expert_scale.empty()) scale_weights(weights.expert_scale, token);
    }
  });
}

void MoeRouting::scale_weights(const std::vector<float>& scale, int64_t token) {
  const auto top_k = static_cast<size_t>(config_.routing.top_k);
  const size_t first = static_cast<size_t>(token) * top_k;
  for (size_t k = first; k < first + top_k; ++k) {
    weights_[k] *= scale[static_cast<size_t>(experts_[k])];
  }
}

// experts_ keeps all tokens, which are counted and reported. weights_ keeps only the wanted tokens,
// contiguous in the order in which they are sent.
void MoeRouting::keep_wanted(const MoeCall& call) {
  if (!call.wanted) {
    wanted_.resize(static_cast<size_t>(call.num_tokens));
    std::iota(wanted_.begin(), wanted_.end(), 0);
    return;
  }
  wanted_.assign(call.wanted->begin(), call.wanted->end());
  const int top_k = config_.routing.top_k;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    std::copy_n(weights_.begin() + int64_t{wanted_[i]} * top_k, top_k,
                weights_.begin() + static_cast<int64_t>(i) * top_k);
  }
}

std::span<const int32_t> MoeRouting::experts_of(ep::TokenRange tokens) const {
  const size_t top_k = config_.routing.top_k;
  return std::span(experts_).subspan(tokens.begin * top_k, tokens.size * top_k);
}

ep::TokenRange MoeRouting::wanted_of(ep::TokenRange tokens) const {
  const auto first = std::lower_bound(wanted_.begin(), wanted_.end(), tokens.begin);
  const auto last = std::lower_bound(first, wanted_.end(), tokens.begin + tokens.size);
  return {static_cast<int>(first - wanted_.begin()), static_cast<int>(last - first)};
}

std::span<const float> MoeRouting::weights_of(ep::TokenRange wanted) const {
  const size_t top_k = config_.routing.top_k;
  return std::span(weights_).subspan(wanted.begin * top_k, wanted.size * top_k);
}

}  // namespace wideep::model
