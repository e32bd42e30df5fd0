// SPDX-License-Identifier: Apache-2.0
//
// Rows are encoded once for a layer, before slots are chosen, so that chunks and replicas send the
// same bytes. Input rows are pointers, because only some of a rank's tokens may be wanted; where
// the experts take what h holds, nothing is copied.
//
// Coming back, slices are columns and experts are rows: the sum is made for each slice in the order
// of the top k, and so its bits do not depend on where experts lie.
#include "model/parts/token_rows.h"

#include "model/parts/tensor_group.h"

namespace wideep::model {
namespace {

// Sizes of tasks: coding a row, or adding the results of a token, takes about a microsecond.
constexpr int64_t kRowsPerTask = 8;
constexpr int64_t kTokensPerTask = 4;

}  // namespace

TokenRows::TokenRows(const ModelConfig& config, int num_slices, const MoeOptions& options)
    : hidden_(config.hidden_size),
      width_(config.expert_hidden_size()),
      num_slices_(num_slices),
      weight_on_input_(config.weight_on_input),
      residual_scale_(config.moe_latent_size > 0 ? 1.0f
                                                 : config.residual_scale * config.experts_scale),
      options_(options),
      ones_(static_cast<size_t>(config.routing.top_k), 1.0f) {}

// ---- out ----

SourceRows TokenRows::wanted_rows(const MoeCall& call, std::span<const int32_t> wanted) {
  return call.wanted ? rows_of(call.h, wanted)
                     : float_rows(call.h, hidden_, call.num_tokens, hidden_);
}

kernels::InputRows TokenRows::encode(const Compute& compute, const SourceRows& plain,
                                     std::span<const float> weights) {
  const kernels::RowFormat format = options_.dispatch_format();
  const bool adjacent = plain.rows.pointers == nullptr;
  if (format == kernels::RowFormat::kF32 && adjacent && weights.empty()) return plain.rows;
  const SourceRows rows = weights.empty() ? plain : scale(compute, plain, weights);
  const kernels::InputRows encoded = encode(compute, rows);
  if (options_.measure_noise) {
    noise_ = {};
    for (int i = 0; i < rows.num_rows; ++i) {
      noise_.add(compute.kernels(), {.plain = rows.rows[i],
                                     .coded = encoded[i],
                                     .dtype = rows.dtype,
                                     .format = format,
                                     .width = rows.width});
    }
  }
  return encoded;
}

SourceRows TokenRows::scale(const Compute& compute, const SourceRows& rows,
                            std::span<const float> weights) {
  const auto width = static_cast<size_t>(rows.width);
  float* scaled = scaled_.get<float>(weights.size() * width);
  compute.pool().parallel_for_ranges(rows.num_rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = scaled + static_cast<size_t>(i) * width;
      std::copy_n(static_cast<const float*>(rows.rows[static_cast<int>(i)]), width, row);
      compute.kernels().scale_row(weights[static_cast<size_t>(i)], rows.width, row);
    }
  });
  return float_rows(scaled, width, rows.num_rows, rows.width);
}

kernels::InputRows TokenRows::encode(const Compute& compute, const SourceRows& rows) {
  const kernels::RowFormat format = options_.dispatch_format();
  const size_t bytes = kernels::row_bytes(format, rows.width);
  auto* encoded = encoded_.get<std::byte>(static_cast<size_t>(rows.num_rows) * bytes);
  compute.pool().parallel_for_ranges(rows.num_rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      compute.kernels().encode_row(Dtype::kF32, rows.rows[static_cast<int>(row)], format,
                                   rows.width, encoded + static_cast<size_t>(row) * bytes);
    }
  });
  return {encoded, bytes};
}

SourceRows TokenRows::rows_of(const float* h, std::span<const int32_t> tokens) {
  row_pointers_.clear();
  for (const int32_t token : tokens) {
    row_pointers_.push_back(h + static_cast<size_t>(token) * hidden_);
  }
  return {
      {.pointers = row_pointers_.data()}, static_cast<int>(tokens.size()), hidden_, Dtype::kF32};
}

SourceRows TokenRows::shared_input(const MoeCall& call, std::span<const int32_t> wanted,
                                   const kernels::InputRows& encoded) {
  if (!travel_plain()) return rows_of(call.h, wanted);
  return {encoded, static_cast<int>(wanted.size()), hidden_, options_.row_dtype};
}

SourceRows TokenRows::shared_input(const Compute& compute, const float* h,
                                   std::span<const int32_t> tokens) {
  const SourceRows rows = rows_of(h, tokens);
  // The MoeRunner's variant takes rows that were rounded for the dispatch. To get the same bits,
  // these rows must be rounded too.
  if (!travel_plain() || options_.row_dtype == Dtype::kF32) return rows;
  return {encode(compute, rows), rows.num_rows, rows.width, options_.row_dtype};
}

// ---- back ----

void TokenRows::add_results(const Compute& compute, const ep::DispatchCombine& exchange,
                            const Returned& returned) {
  const auto width = static_cast<size_t>(width_);
  const auto count = static_cast<int64_t>(returned.tokens.size());
  compute.pool().parallel_for_ranges(count, kTokensPerTask, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      add_token(compute, exchange.results(static_cast<int>(i)),
                {.weights = returned.weights.empty() ? ones_.data()
                                                     : returned.weights.data() + i * ones_.size(),
                 .shared = returned.shared == nullptr ? nullptr : returned.shared + i * width,
                 .x = returned.x + static_cast<size_t>(returned.tokens[i]) * width});
    }
  });
}

// Every slice of an expert has returned a row with its columns, so the sum is made per slice. args:
// weights, shared and x of the token.
void TokenRows::add_token(const Compute& compute, std::span<const std::byte* const> results,
                          kernels::ReduceArgs args) const {
  const float* shared = args.shared;
  float* x = args.x;
  const size_t per_slice = results.size() / static_cast<size_t>(num_slices_);
  args.top_k = static_cast<int>(per_slice);
  args.format = options_.combine_format();
  args.scale = residual_scale_;
  for (int slice = 0; slice < num_slices_; ++slice) {
    const ColumnRange columns = columns_of_part(width_, slice, num_slices_);
    args.n = columns.size;
    args.rows = results.data() + static_cast<size_t>(slice) * per_slice;
    args.shared = shared == nullptr ? nullptr : shared + columns.begin;
    args.x = x + columns.begin;
    compute.kernels().reduce_experts(args);
  }
}

}  // namespace wideep::model
