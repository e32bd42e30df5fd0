// SPDX-License-Identifier: Apache-2.0
#include "model/parts/rank_experts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "model/parts/resident_experts.h"

namespace wideep::model {

RankExperts::RankExperts(const ModelConfig& config, const ExpertSlots& slots,
                         const ep::DispatchShape& shape, const MoeOptions& options,
                         TensorGroup shards)
    : config_(config),
      slots_(slots),
      shape_(shape),
      row_dtype_(options.row_dtype),
      resident_(options.resident),
      shards_(std::move(shards)),
      rows_(config, shape, options,
            columns_of_part(config.expert_hidden_size(), shards_.rank(), shards_.size())) {
  WIDEEP_CHECK_EQ(shards_.size(), shape.num_slices);
}

Status RankExperts::run(const Compute& compute, const ep::DispatchCombine& exchange,
                        std::span<const int32_t> borrowed, const transport::Awaited& where) {
  // All experts have one shape, so that any slot can hold any of them.
  const kernels::PackedShape gate = slots_.shape().gate();
  rows_.place(compute, exchange, gate);
  list_work(exchange, borrowed, where.layer, gate.format);
  WIDEEP_TRY(run_work(compute, where));
  rows_.finish(compute, exchange);
  return {};
}

// The records of all layers have one shape; what is computed with them may differ.
weights::GatedMlp RankExperts::of_layer(int layer, weights::GatedMlp expert) const {
  expert.activation = config_.expert_activation(layer);
  return expert;
}

// Lists the experts that have rows.
void RankExperts::list_work(const ep::DispatchCombine& exchange, std::span<const int32_t> borrowed,
                            int layer, kernels::WeightFormat format) {
  work_.clear();
  size_t first = 0;
  for (int slot = 0; slot < shape_.local_slots(); ++slot) {
    const int num_rows = static_cast<int>(exchange.rows_of_slot(slot).size());
    if (num_rows == 0) continue;
    const int own_slots = shape_.slots_per_rank;
    work_.push_back(
        {of_layer(layer, slot < own_slots ? slots_.expert(layer, slot)
                                          : slots_.pool_expert(layer, borrowed[slot - own_slots])),
         {{.pointers = rows_.inputs() + first}, num_rows, config_.expert_hidden_size(), format},
         {.dtype = row_dtype_, .pointers = rows_.results() + first}});
    first += static_cast<size_t>(num_rows);
  }
}

// ---- where some are absent ----

void RankExperts::choose(const Compute& compute, const ep::DispatchCombine& exchange,
                         const transport::Awaited& where, int64_t num_tokens) {
  rows_.place(compute, exchange, slots_.shape().gate());
  rows_of_slots_.clear();
  first_of_slots_.clear();
  size_t first = 0;
  for (int slot = 0; slot < shape_.slots_per_rank; ++slot) {
    const size_t num_rows = exchange.rows_of_slot(slot).size();
    rows_of_slots_.push_back(static_cast<int>(num_rows));
    first_of_slots_.push_back(first);
    first += num_rows;
  }
  resident_->choose({.layer = where.layer, .iteration = where.iteration, .num_tokens = num_tokens},
                    rows_of_slots_);
}

void RankExperts::run_chosen(const Compute& compute, const ep::DispatchCombine& exchange, int layer,
                             const std::function<void()>& meanwhile) {
  run_slots(compute, layer, resident_->present());
  meanwhile();
  for (;;) {
    const std::span<const int> slots = resident_->await();
    if (slots.empty()) break;
    run_slots(compute, layer, slots);
  }
  rows_.finish(compute, exchange);
}

void RankExperts::run_slots(const Compute& compute, int layer, std::span<const int> slots) {
  const kernels::WeightFormat format = slots_.shape().format;
  work_.clear();
  for (const int slot : slots) {
    if (slots_.is_absent(layer, slot)) {
      spoil_results(slot);
      continue;
    }
    const auto at = static_cast<size_t>(slot);
    const size_t first = first_of_slots_[at];
    work_.push_back({of_layer(layer, slots_.expert(layer, slot)),
                     {{.pointers = rows_.inputs() + first},
                      rows_of_slots_[at],
                      config_.expert_hidden_size(),
                      format},
                     {.dtype = row_dtype_, .pointers = rows_.results() + first}});
  }
  if (!work_.empty()) runner_.run(compute, work_);
}

// Tokens that have chosen it get rows that are not numbers, and so does all that depends on them:
// whoever samples them knows that they are wrong.
void RankExperts::spoil_results(int slot) {
  const auto at = static_cast<size_t>(slot);
  const auto columns = static_cast<size_t>(rows_.columns().size);
  for (size_t i = 0; i < static_cast<size_t>(rows_of_slots_[at]); ++i) {
    void* const row = rows_.results()[first_of_slots_[at] + i];
    if (row_dtype_ == Dtype::kF32) {
      std::fill_n(static_cast<float*>(row), columns, std::numeric_limits<float>::quiet_NaN());
    } else {
      std::fill_n(static_cast<Bf16*>(row), columns, Bf16(std::numeric_limits<float>::quiet_NaN()));
    }
  }
}

// ---- slices ----

// All shards receive the same rows, so either all of them have work and meet, or none.
Status RankExperts::run_work(const Compute& compute, const transport::Awaited& where) {
  if (work_.empty()) return {};
  if (shards_.is_alone()) {
    runner_.run(compute, work_);
    return {};
  }
  return runner_.run(compute, shards_, work_, shared_between(), where);
}

// A fast rank may begin the next call, and write its intermediate rows, while a slow rank still
// reads those of this call. So calls that can be in flight together use different parts of the
// buffer.
std::byte* RankExperts::shared_between() {
  const size_t row_bytes =
      static_cast<size_t>(config_.moe_intermediate_size) * dtype_bytes(row_dtype_);
  const auto rows = static_cast<size_t>(between_rows(shape_));
  const auto calls = static_cast<size_t>(shape_.calls_in_flight);
  auto* between = shards_.joint<std::byte>(JointBuffer::kBetween, rows * row_bytes);
  return between + calls_run_++ % calls * (rows / calls) * row_bytes;
}

int64_t RankExperts::between_rows(const ep::DispatchShape& shape) {
  return shape.calls_in_flight * shape.max_rows() * std::min(shape.top_k, shape.local_slots());
}

}  // namespace wideep::model
