// SPDX-License-Identifier: Apache-2.0
#include "model/moe.h"

#include <algorithm>
#include <cstring>

#include "base/cpu_time.h"
#include "base/try.h"
#include "model/router.h"

namespace wideep::model {
MoeRunner::MoeRunner(const ModelConfig& config, const balance::ModelPlacement& placement,
                     const ExpertSlots& slots, transport::Endpoint& endpoint,
                     const ep::BufferLayout& layout)
    : config_(config),
      slots_(slots),
      endpoint_(endpoint),
      row_dtype_(layout.shape().row_dtype),
      exchange_(endpoint, layout) {
  for (const auto& [layer, layer_placement] : placement.layers) {
    tables_.emplace(layer, balance::make_routing_table(layer_placement));
  }
}

void MoeRunner::set_placement(int layer, const balance::Placement& placement,
                              std::span<const double>) {
  tables_.at(layer) = balance::make_routing_table(placement);
}

Status MoeRunner::forward(const Compute& compute, const MoeWeights& weights, int layer,
                          int64_t iteration, int num_tokens, const float* h, float* x) {
  const int hidden = config_.hidden_size;
  const transport::Awaited where{.layer = layer, .iteration = iteration};
  route(compute, weights, num_tokens, h);
  WIDEEP_TRY(exchange_.prepare(counts_, where));
  chooser_.choose(tables_.at(layer), experts_, endpoint_.rank() + iteration, slot_ids_);

  const SourceRows rows = rows_to_send(compute, num_tokens, h);
  WIDEEP_TRY(exchange_.dispatch(static_cast<const std::byte*>(rows.rows.first), rows.rows.stride,
                                num_tokens, slot_ids_, where));

  const int64_t cpu_before = base::thread_cpu_ns() + compute.pool().lag_cpu_ns();
  run_experts(compute, layer);
  const int64_t experts_cpu_ns = base::thread_cpu_ns() + compute.pool().lag_cpu_ns() - cpu_before;

  float* shared = nullptr;
  if (weights.has_shared()) {
    shared = shared_out_.get<float>(static_cast<size_t>(num_tokens) * hidden);
    shared_runner_.run(compute, weights.shared.view(), rows, shared, hidden);
  }
  WIDEEP_TRY(exchange_.combine(where));
  reduce(compute, num_tokens, shared, x);
  if (observer_) {
    sum_counts();
    observer_({.layer = layer,
               .experts = experts_,
               .counts = counts_,
               .group_counts = group_counts_,
               .sent_entries = exchange_.sent_entries(),
               .experts_cpu_ns = experts_cpu_ns});
  }
  return {};
}

// Chosen experts and their weights, in float32 whatever the model's precision.
void MoeRunner::route(const Compute& compute, const MoeWeights& weights, int num_tokens,
                      const float* h) {
  const RoutingConfig& routing = config_.routing;
  const size_t entries = static_cast<size_t>(num_tokens) * routing.top_k;
  experts_.resize(entries);
  slot_ids_.resize(entries);
  expert_weights_.resize(entries);
  float* logits = logits_.get<float>(static_cast<size_t>(num_tokens) * routing.num_experts);
  const size_t hidden = config_.hidden_size;
  const SourceRows rows = float_rows(h, hidden, num_tokens, config_.hidden_size);
  compute.matmul(compute.cast(weights.router.packed.shape, rows, cast_), weights.router.packed,
                 logits, routing.num_experts);
  const float* bias = weights.router_bias.empty() ? nullptr : weights.router_bias.data();
  compute.pool().parallel_for(num_tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      select_experts(routing, logits + token * routing.num_experts, bias,
                     experts_.data() + token * routing.top_k,
                     expert_weights_.data() + token * routing.top_k);
    }
  });
  counts_.assign(routing.num_experts, 0);
  for (const int32_t expert : experts_) ++counts_[expert];
}

void MoeRunner::sum_counts() {
  group_counts_.assign(counts_.size(), 0);
  for (int source = 0; source < endpoint_.num_ranks(); ++source) {
    const std::span<const int32_t> counts = exchange_.counts_of(source);
    for (size_t e = 0; e < counts.size(); ++e) group_counts_[e] += counts[e];
  }
}

// The normalised rows in the dtype that travels.
SourceRows MoeRunner::rows_to_send(const Compute& compute, int num_tokens, const float* h) {
  const int hidden = config_.hidden_size;
  const SourceRows rows = float_rows(h, hidden, num_tokens, hidden);
  if (row_dtype_ == Dtype::kF32) return rows;
  const kernels::PackedShape any_bf16 =
      kernels::packed_shape(kernels::WeightFormat::kBf16, 1, hidden);
  return {compute.cast(any_bf16, rows, cast_).input, num_tokens, hidden, row_dtype_};
}

void MoeRunner::run_experts(const Compute& compute, int layer) {
  received_.clear();
  results_.clear();
  const int num_slots = tables_.at(layer).slot_ids.size() / endpoint_.num_ranks();
  for (int slot = 0; slot < num_slots; ++slot) {
    for (const ep::ExpertRow& row : exchange_.rows_of_slot(slot)) {
      received_.push_back(row.hidden);
      results_.push_back(row.result);
    }
  }
  work_.clear();
  size_t first = 0;
  for (int slot = 0; slot < num_slots; ++slot) {
    const int num_rows = static_cast<int>(exchange_.rows_of_slot(slot).size());
    if (num_rows == 0) continue;
    work_.push_back(
        {slots_.expert(layer, slot),
         {{.pointers = received_.data() + first}, num_rows, config_.hidden_size, row_dtype_},
         {.dtype = row_dtype_, .pointers = results_.data() + first}});
    first += static_cast<size_t>(num_rows);
  }
  if (!work_.empty()) experts_runner_.run(compute, work_);
}

// x += shared + Σ_k weight_k · result_k, the sum in top-k order: the same order for every
// placement.
void MoeRunner::reduce(const Compute& compute, int num_tokens, const float* shared, float* x) {
  const int hidden = config_.hidden_size, top_k = config_.routing.top_k;
  compute.pool().parallel_for(num_tokens, 4, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      compute.kernels().reduce_experts(
          {.n = hidden,
           .top_k = top_k,
           .rows_dtype = row_dtype_,
           .rows = exchange_.results(static_cast<int>(token)).data(),
           .weights = expert_weights_.data() + token * top_k,
           .shared = shared == nullptr ? nullptr : shared + token * hidden,
           .x = x + token * hidden});
    }
  });
}

}  // namespace wideep::model
