// SPDX-License-Identifier: Apache-2.0
#include "model/parts/rank_experts.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/try.h"

namespace wideep::model {

RankExperts::RankExperts(const ModelConfig& config, const ExpertSlots& slots,
                         const ep::DispatchShape& shape, const MoeOptions& options,
                         TensorGroup shards)
    : config_(config),
      slots_(slots),
      shape_(shape),
      row_dtype_(options.row_dtype),
      shards_(std::move(shards)),
      rows_(config, shape, options,
            columns_of_part(config.hidden_size, shards_.rank(), shards_.size())) {
  WIDEEP_CHECK_EQ(shards_.size(), shape.num_slices);
}

Status RankExperts::run(const Compute& compute, const ep::DispatchCombine& exchange,
                        std::span<const int32_t> borrowed, const transport::Awaited& where) {
  // All experts have one shape, so that any slot can hold any of them.
  const kernels::PackedShape gate = slots_.expert(where.layer, 0).gate.shape;
  rows_.place(compute, exchange, gate);
  list_work(exchange, borrowed, where.layer, gate.format);
  WIDEEP_TRY(run_work(compute, where));
  rows_.finish(compute, exchange);
  return {};
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
    work_.push_back({slot < own_slots ? slots_.expert(layer, slot)
                                      : slots_.pool_expert(layer, borrowed[slot - own_slots]),
                     {{.pointers = rows_.inputs() + first}, num_rows, config_.hidden_size, format},
                     {.dtype = row_dtype_, .pointers = rows_.results() + first}});
    first += static_cast<size_t>(num_rows);
  }
}

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
