// SPDX-License-Identifier: Apache-2.0
//
// Whether rows are decoded, cast, encoded or summed follows from the formats; each step that is not
// needed costs nothing, because pointers to the received rows or to the final places are handed on
// instead. Steps that are needed are done together for a few rows, while these are in a core's
// caches.
//
// A row is decoded once for all experts of this rank that take it (messages_), but has a result for
// each of them; results of a token lie side by side (entry), as the sum needs them.
#include "model/parts/expert_rows.h"

#include <algorithm>
#include <span>

namespace wideep::model {
namespace {

constexpr int64_t kRowsPerTask = 8;  // coding a row takes about a microsecond

// Σ args.weights[k] · args.rows[k] in float32.
void sum_exactly(const kernels::Kernels& kernels, kernels::ReduceArgs args, float* sum) {
  std::fill_n(sum, args.n, 0.0f);
  args.x = sum;
  kernels.reduce_experts(args);
}

// The same sum, encoded as a row that travels. sum: scratch of args.n floats; with ExactSum::kKeep
// it holds the float32 sum afterwards. A bf16 row without kKeep is written by the kernel directly,
// with the same bits.
enum class ExactSum { kKeep, kDrop };
void sum_as_row(const kernels::Kernels& kernels, kernels::ReduceArgs args,
                kernels::RowFormat format, ExactSum exact, float* sum, std::byte* row) {
  if (format == kernels::RowFormat::kBf16 && exact == ExactSum::kDrop) {
    args.sum = reinterpret_cast<Bf16*>(row);
    kernels.reduce_experts(args);
    return;
  }
  sum_exactly(kernels, args, sum);
  kernels.encode_row(Dtype::kF32, sum, format, args.n, row);
}

}  // namespace

ExpertRows::ExpertRows(const ModelConfig& config, const ep::DispatchShape& shape,
                       const MoeOptions& options, ColumnRange columns)
    : shape_(shape),
      options_(options),
      hidden_(config.expert_hidden_size()),
      columns_(columns),
      result_bytes_(static_cast<size_t>(columns.size) * dtype_bytes(options.row_dtype)),
      columns_offset_(static_cast<size_t>(columns.begin) * dtype_bytes(options.row_dtype)) {}

// ---- before the experts ----

void ExpertRows::place(const Compute& compute, const ep::DispatchCombine& exchange,
                       const kernels::PackedShape& gate) {
  inputs_.clear();
  returned_.clear();
  messages_.resize(static_cast<size_t>(exchange.num_messages()));
  for (int slot = 0; slot < shape_.local_slots(); ++slot) {
    for (const ep::ExpertRow& row : exchange.rows_of_slot(slot)) {
      messages_[row.message] = row.row;
      returned_.push_back(row.result);
    }
  }
  const kernels::InputRows inputs = received_inputs(compute, gate);
  for (int slot = 0; slot < shape_.local_slots(); ++slot) {
    for (const ep::ExpertRow& row : exchange.rows_of_slot(slot)) {
      inputs_.push_back(inputs[row.message]);
    }
  }
  place_results(exchange);
}

// The received rows as operands of gate and up. One task does both steps (decode, cast) of its
// rows, while they are in its caches.
kernels::InputRows ExpertRows::received_inputs(const Compute& compute,
                                               const kernels::PackedShape& gate) {
  const kernels::RowFormat format = options_.dispatch_format();
  const bool decodes = format != kernels::row_format(options_.row_dtype);
  const bool casts = needs_cast(gate, options_.row_dtype);
  const auto count = static_cast<int64_t>(messages_.size());
  const size_t plain_bytes = static_cast<size_t>(hidden_) * dtype_bytes(options_.row_dtype);
  SourceRows plain{
      {.pointers = messages_.data()}, static_cast<int>(count), hidden_, options_.row_dtype};
  std::byte* decoded = nullptr;
  if (decodes) {
    decoded = decoded_.get<std::byte>(messages_.size() * plain_bytes);
    plain.rows = {decoded, plain_bytes};
  }
  if (!decodes && !casts) return plain.rows;
  const size_t bytes = operand_bytes(gate);
  auto* operands = casts ? operands_.get<std::byte>(messages_.size() * bytes) : nullptr;
  compute.pool().parallel_for_ranges(count, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; decodes && i < end; ++i) {
      compute.kernels().decode_row(
          format, static_cast<const std::byte*>(messages_[static_cast<size_t>(i)]), hidden_,
          options_.row_dtype, decoded + static_cast<size_t>(i) * plain_bytes);
    }
    if (casts) {
      cast_rows_to(compute.kernels(), gate, plain.part(begin, end),
                   operands + static_cast<size_t>(begin) * bytes);
    }
  });
  return casts ? kernels::InputRows{operands, bytes} : plain.rows;
}

// Experts write directly to the final places if no conversion follows. Otherwise they write to
// scratch memory in the order of entries, in which the results of a token are adjacent, as
// sum_results needs them.
void ExpertRows::place_results(const ep::DispatchCombine& exchange) {
  results_.clear();
  if (!reduced() && return_plain()) {
    for (std::byte* result : returned_) results_.push_back(result - columns_offset_);
    return;
  }
  auto* plain = plain_results_.get<std::byte>(columns_offset_ + returned_.size() * result_bytes_);
  for (int slot = 0; slot < shape_.local_slots(); ++slot) {
    for (const ep::ExpertRow& row : exchange.rows_of_slot(slot)) {
      results_.push_back(plain + static_cast<size_t>(row.entry) * result_bytes_);
    }
  }
}

// ---- after the experts ----

void ExpertRows::finish(const Compute& compute, const ep::DispatchCombine& exchange) {
  if (reduced()) {
    sum_results(compute, exchange);
  } else if (!return_plain()) {
    encode_results(compute);
  }
}

void ExpertRows::encode_results(const Compute& compute) {
  const kernels::RowFormat format = options_.combine_format();
  const auto plain = [&](size_t i) {
    return static_cast<const std::byte*>(results_[i]) + columns_offset_;
  };
  const auto count = static_cast<int64_t>(results_.size());
  compute.pool().parallel_for_ranges(count, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      compute.kernels().encode_row(options_.row_dtype, plain(i), format, columns_.size,
                                   returned_[i]);
    }
  });
  if (!options_.measure_noise) return;
  for (size_t i = 0; i < results_.size(); ++i) {
    noise_.add(compute.kernels(), {.plain = plain(i),
                                   .coded = returned_[i],
                                   .dtype = options_.row_dtype,
                                   .format = format,
                                   .width = columns_.size});
  }
}

// Combine::kReduced: for each received token one row goes back, Σ weight · result in top-k order
// over this rank's experts.
void ExpertRows::sum_results(const Compute& compute, const ep::DispatchCombine& exchange) {
  const auto width = static_cast<size_t>(columns_.size);
  const std::span<const ep::ReceivedToken> tokens = exchange.received_tokens();
  const std::byte* plain = plain_results_.get<std::byte>(0) + columns_offset_;  // by entry
  auto* sums = sums_.get<float>(tokens.size() * width);
  const auto count = static_cast<int64_t>(tokens.size());
  compute.pool().parallel_for_ranges(count, kRowsPerTask, [&](int64_t begin, int64_t end) {
    std::vector<const std::byte*> rows;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const ep::ReceivedToken& token = tokens[i];
      rows.clear();
      for (size_t n = 0; n < token.weights.size(); ++n) {
        rows.push_back(plain + (static_cast<size_t>(token.first_entry) + n) * result_bytes_);
      }
      const kernels::ReduceArgs args{.n = columns_.size,
                                     .top_k = static_cast<int>(rows.size()),
                                     .format = kernels::row_format(options_.row_dtype),
                                     .rows = rows.data(),
                                     .weights = token.weights.data()};
      sum_as_row(compute.kernels(), args, options_.combine_format(),
                 options_.measure_noise ? ExactSum::kKeep : ExactSum::kDrop, sums + i * width,
                 token.result);
    }
  });
  if (!options_.measure_noise) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    noise_.add(compute.kernels(), {.plain = sums + i * width,
                                   .coded = tokens[i].result,
                                   .dtype = Dtype::kF32,
                                   .format = options_.combine_format(),
                                   .width = columns_.size});
  }
}

// Sums in float32, then encodes in the format in which results return.
ep::RowSum ExpertRows::row_sum(const kernels::Kernels& kernels) const {
  return
      [&kernels, format = options_.combine_format(),
       sum = std::vector<float>(static_cast<size_t>(columns_.size)), ones = std::vector<float>()](
          std::span<const std::byte* const> rows, std::byte* out) mutable {
        ones.assign(rows.size(), 1.0f);
        sum_as_row(kernels,
                   {.n = static_cast<int>(sum.size()),
                    .top_k = static_cast<int>(rows.size()),
                    .format = format,
                    .rows = rows.data(),
                    .weights = ones.data()},
                   format, ExactSum::kDrop, sum.data(), out);
      };
}

}  // namespace wideep::model
