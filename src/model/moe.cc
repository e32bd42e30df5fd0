// SPDX-License-Identifier: Apache-2.0
#include "model/moe.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/trace.h"
#include "base/try.h"
#include "ep/check_shapes.h"
#include "model/router.h"

namespace wideep::model {

using base::Span;
using base::TraceSpan;

namespace {

constexpr int64_t kRowsPerTask = 8;

void add_counts(std::span<const int32_t> values, std::span<int32_t> sums) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

// args.weights · args.rows in float32.
void sum_exactly(const kernels::Kernels& kernels, kernels::ReduceArgs args, float* sum) {
  std::fill_n(sum, args.n, 0.0f);
  args.x = sum;
  kernels.reduce_experts(args);
}

// The same as a row that travels. sum: args.n floats, which hold it then where kKeep or the row is
// coded.
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

MoeRunner::MoeRunner(const ModelConfig& config, const balance::ModelPlacement& placement,
                     const ExpertSlots& slots, transport::Endpoint& endpoint,
                     const ep::BufferLayout& layout, const MoeOptions& options, TensorGroup shards)
    : config_(config),
      endpoint_(endpoint),
      slots_(slots),
      shards_(std::move(shards)),
      shape_(layout.shape()),
      options_(options),
      share_update_(placement.share_update),
      chooser_(layout.shape(), endpoint.rank()),
      exchange_(endpoint, layout) {
  const int hidden = config.hidden_size;
  WIDEEP_CHECK_GE(shape_.row_bytes, kernels::row_bytes(options.dispatch_format(), hidden));
  WIDEEP_CHECK_EQ(shards_.size(), shape_.num_slices);
  WIDEEP_CHECK_GE(shape_.result_bytes,
                  kernels::row_bytes(options.combine_format(), columns_of(shards_.rank()).size));
  if (options.perfect_router) {
    perfect_router_.emplace(config.routing, shape_.num_owners(),
                            endpoint.rank() % shape_.num_owners());
  }
  for (const auto& [layer, layer_placement] : placement.layers) {
    set_placement(layer, layer_placement, {});
  }
}

void MoeRunner::set_placement(int layer, const balance::Placement& placement,
                              std::span<const double> shares) {
  chooser_.set_placement(layer, placement, shares);
}

Status MoeRunner::forward(const Compute& compute, const MoeWeights& weights, const MoeCall& call) {
  if (!exchange_.is_open()) {
    WIDEEP_TRY(ep::check_shapes_match(shape_, endpoint_));
    exchange_.set_row_sum(row_sum(compute.kernels()));
    WIDEEP_TRY(exchange_.open());
  }
  route(compute, weights, call);
  keep_wanted(call);
  Progress progress{compute, weights, call, rows_to_send(compute, call),
                    ep::num_chunks(call.tokens_of_ranks, shape_.max_group_tokens)};
  start_totals();
  WIDEEP_TRY(run_chunks(progress));
  if (observer_) {
    observer_({.layer = call.layer,
               .experts = experts_,
               .counts = counts_,
               .group_counts = group_counts_,
               .sent_entries = sent_entries_,
               .experts_cpu_ns = experts_cpu_ns_,
               .dispatched = dispatched_,
               .returned = returned_noise_});
  }
  return {};
}

// Combine::kReduced, ranks of one node for another: in float32, then in the form rows return in.
ep::RowSum MoeRunner::row_sum(const kernels::Kernels& kernels) const {
  const auto width = static_cast<size_t>(columns_of(shards_.rank()).size);
  return [&kernels, format = options_.combine_format(), sum = std::vector<float>(width),
          ones = std::vector<float>()](std::span<const std::byte* const> rows,
                                       std::byte* out) mutable {
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

Status MoeRunner::run_chunks(Progress& progress) {
  for (int chunk = 0; chunk < progress.num_chunks; ++chunk) {
    WIDEEP_TRY(send_chunk(progress, chunk, Wait::kYes));
    if (shape_.calls_in_flight > 1) WIDEEP_TRY(send_chunk(progress, chunk + 1, Wait::kNo));
    if (!exchange_.rows_have_come()) run_shared(progress);
    WIDEEP_TRY(receive(progress));
    for (int rank = 0; rank < shape_.ep_size; ++rank) {
      add_counts(exchange_.received_counts(rank), group_counts_);
    }
    WIDEEP_TRY(run_experts(progress));
    WIDEEP_TRY(exchange_.start_combine());
  }
  while (progress.reduced < progress.num_chunks) WIDEEP_TRY(reduce_chunk(progress));
  return {};
}

Status MoeRunner::receive(const Progress& progress) {
  const TraceSpan span(Span::kAwaitRows, progress.call.layer);
  return exchange_.finish_dispatch(progress.where());
}

// Sends the chunk's rows, if that has not been done. Wait::kNo: goes as far as it can without
// waiting; buffers of a chunk that is not yet reduced are freed by reducing it.
Status MoeRunner::send_chunk(Progress& progress, int chunk, Wait wait) {
  if (chunk == progress.num_chunks || chunk < progress.sent) return {};
  const bool by_counts = splits_by_counts(progress.call.layer);
  if (chunk == progress.begun) {
    if (chunk - progress.reduced == shape_.calls_in_flight) {
      if (wait == Wait::kNo && !exchange_.results_have_come()) return {};
      WIDEEP_TRY(reduce_chunk(progress));
    }
    WIDEEP_TRY(begin_chunk(progress));
    if (by_counts) exchange_.announce_counts();
  }
  if (by_counts && wait == Wait::kNo && !exchange_.counts_have_come()) return {};
  const ep::TokenRange tokens = progress.tokens_of(chunk);
  const ep::TokenRange wanted = wanted_of(tokens);
  WIDEEP_TRY(choose_slots(progress, tokens));
  const TraceSpan span(Span::kPush, progress.call.layer);
  WIDEEP_TRY(exchange_.start_dispatch(static_cast<const std::byte*>(progress.rows[wanted.begin]),
                                      progress.rows.stride, wanted.size, slot_ids_,
                                      reduced() ? weights_of(wanted) : std::span<const float>()));
  add_counts(chunk_counts_, counts_);
  ++progress.sent;
  return {};
}

// The next chunk whose results have not been summed.
Status MoeRunner::reduce_chunk(Progress& progress) {
  run_shared(progress);
  {
    const TraceSpan span(Span::kAwaitResults, progress.call.layer);
    WIDEEP_TRY(exchange_.finish_combine(progress.where()));
  }
  const ep::TokenRange wanted = wanted_of(progress.tokens_of(progress.reduced));
  reduce(progress.compute, progress.call, wanted, progress.shared);
  ++progress.reduced;
  return {};
}

// Chosen experts and their weights, in float32 whatever the model's precision.
void MoeRunner::route(const Compute& compute, const MoeWeights& weights, const MoeCall& call) {
  const TraceSpan span(Span::kRouter, call.layer);
  const RoutingConfig& routing = config_.routing;
  const size_t num_tokens = static_cast<size_t>(call.num_tokens);
  experts_.resize(num_tokens * routing.top_k);
  expert_weights_.resize(num_tokens * routing.top_k);
  float* logits = logits_.get<float>(num_tokens * routing.num_experts);
  const size_t hidden = config_.hidden_size;
  const SourceRows rows = float_rows(call.h, hidden, call.num_tokens, config_.hidden_size);
  compute.matmul(compute.cast(weights.router.packed.shape, rows, cast_), weights.router.packed,
                 logits, routing.num_experts);
  const float* bias = weights.router_bias.empty() ? nullptr : weights.router_bias.data();
  const float* chosen_by = logits;
  if (perfect_router_) {
    chosen_by = perfect_router_->logits(call.num_tokens);
    bias = perfect_router_->zero_bias();
  }
  compute.pool().parallel_for_ranges(call.num_tokens, 16, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      select_experts(routing, chosen_by + token * routing.num_experts, bias,
                     experts_.data() + token * routing.top_k,
                     expert_weights_.data() + token * routing.top_k);
    }
  });
}

// From here on weights are those of the wanted tokens, one behind the other.
void MoeRunner::keep_wanted(const MoeCall& call) {
  wanted_.resize(static_cast<size_t>(call.num_tokens));
  std::iota(wanted_.begin(), wanted_.end(), 0);
  if (!call.wanted) return;
  wanted_.assign(call.wanted->begin(), call.wanted->end());
  const int top_k = config_.routing.top_k;
  for (size_t i = 0; i < wanted_.size(); ++i) {
    std::copy_n(expert_weights_.begin() + int64_t{wanted_[i]} * top_k, top_k,
                expert_weights_.begin() + static_cast<int64_t>(i) * top_k);
  }
}

// The wanted tokens' normalised rows as they travel, each in its form before it is known to whom.
kernels::InputRows MoeRunner::rows_to_send(const Compute& compute, const MoeCall& call) {
  const int hidden = config_.hidden_size;
  const kernels::RowFormat format = options_.dispatch_format();
  if (format == kernels::RowFormat::kF32 && !call.wanted) {
    return float_rows(call.h, hidden, call.num_tokens, hidden).rows;
  }
  const SourceRows rows = rows_of(call.h, wanted_);
  const kernels::InputRows coded = encode(compute, rows);
  if (options_.measure_noise) {
    dispatched_ = {};
    for (int i = 0; i < rows.num_rows; ++i) {
      dispatched_.add(compute.kernels(), rows.dtype, rows.rows[i], format, coded[i], hidden);
    }
  }
  return coded;
}

// Float32 rows in the form in which rows travel.
kernels::InputRows MoeRunner::encode(const Compute& compute, const SourceRows& rows) {
  const size_t bytes = kernels::row_bytes(options_.dispatch_format(), rows.width);
  auto* coded = sent_.get<std::byte>(static_cast<size_t>(rows.num_rows) * bytes);
  compute.pool().parallel_for_ranges(rows.num_rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      compute.kernels().encode_row(Dtype::kF32, rows.rows[static_cast<int>(row)],
                                   options_.dispatch_format(), rows.width,
                                   coded + static_cast<size_t>(row) * bytes);
    }
  });
  return {coded, bytes};
}

// What was sent where the experts could take it, too.
SourceRows MoeRunner::rows_of_shared(const MoeCall& call, const kernels::InputRows& sent) {
  if (!travels_plain()) return rows_of(call.h, wanted_);
  return {sent, static_cast<int>(wanted_.size()), config_.hidden_size, options_.row_dtype};
}

SourceRows MoeRunner::rows_of(const float* h, std::span<const int32_t> tokens) {
  const int hidden = config_.hidden_size;
  row_pointers_.clear();
  for (const int32_t token : tokens) {
    row_pointers_.push_back(h + static_cast<size_t>(token) * hidden);
  }
  return {{.pointers = row_pointers_.data()}, static_cast<int>(tokens.size()), hidden, Dtype::kF32};
}

// Tells all ranks how many tokens of the next chunk each expert gets.
Status MoeRunner::begin_chunk(Progress& progress) {
  const TraceSpan span(Span::kBegin, progress.call.layer);
  const int chunk = progress.begun++;
  chunk_tokens_.clear();
  for (const int32_t tokens : progress.call.tokens_of_ranks) {
    chunk_tokens_.push_back(ep::chunk_of(tokens, chunk, progress.num_chunks).size);
  }
  chunk_counts_.assign(config_.routing.num_experts, 0);
  for (const int32_t expert : experts_of(progress.tokens_of(chunk))) ++chunk_counts_[expert];
  return exchange_.begin(chunk_counts_, chunk_tokens_);
}

bool MoeRunner::splits_by_counts(int layer) const {
  return share_update_ == balance::ShareUpdate::kIteration && chooser_.has_replicas(layer);
}

// Of all tokens of the chunk; kept of those that are sent.
Status MoeRunner::choose_slots(const Progress& progress, ep::TokenRange tokens) {
  const int layer = progress.call.layer;
  const TraceSpan span(Span::kChooseSlots, layer);
  if (splits_by_counts(layer)) {
    WIDEEP_TRY(exchange_.await_counts(progress.where()));
    chooser_.split_by_counts(layer, exchange_.counts_of_ranks());
  } else if (chooser_.has_replicas(layer)) {
    chooser_.split_by_given_shares(layer, chunk_counts_);
  }
  const std::span<const int32_t> experts = experts_of(tokens);
  slot_ids_.resize(experts.size());
  chooser_.choose(layer, experts, slot_ids_);
  for (const int32_t slot : slot_ids_) {
    const int owner = slot / shape_.slots_per_rank;
    for (int to = owner; to < shape_.ep_size; to += shape_.num_owners()) ++sent_entries_[to];
  }
  keep_wanted_slots(tokens);
  return {};
}

void MoeRunner::keep_wanted_slots(ep::TokenRange tokens) {
  const ep::TokenRange wanted = wanted_of(tokens);
  if (wanted.size == tokens.size) return;
  const int top_k = config_.routing.top_k;
  for (int i = 0; i < wanted.size; ++i) {
    const int64_t at = wanted_[wanted.begin + i] - tokens.begin;
    std::copy_n(slot_ids_.begin() + at * top_k, top_k, slot_ids_.begin() + int64_t{i} * top_k);
  }
  slot_ids_.resize(static_cast<size_t>(wanted.size) * top_k);
}

Status MoeRunner::run_experts(const Progress& progress) {
  const Compute& compute = progress.compute;
  const int layer = progress.call.layer;
  const TraceSpan span(Span::kExperts, layer);
  const int64_t cpu_before = base::thread_cpu_ns() + compute.pool().lag_cpu_ns();
  const kernels::PackedShape gate = slots_.expert(layer, 0).gate.shape;  // of all experts
  place_rows(compute, gate);
  work_.clear();
  size_t first = 0;
  for (int slot = 0; slot < shape_.slots_per_rank; ++slot) {
    const int num_rows = static_cast<int>(exchange_.rows_of_slot(slot).size());
    if (num_rows == 0) continue;
    work_.push_back(
        {slots_.expert(layer, slot),
         {{.pointers = received_.data() + first}, num_rows, config_.hidden_size, gate.format},
         {.dtype = options_.row_dtype, .pointers = results_.data() + first}});
    first += static_cast<size_t>(num_rows);
  }
  WIDEEP_TRY(run_work(progress));
  if (reduced()) {
    sum_results(compute);
  } else {
    encode_results(compute);
  }
  experts_cpu_ns_ += base::thread_cpu_ns() + compute.pool().lag_cpu_ns() - cpu_before;
  return {};
}

// Ranks that share experts have the same rows for them: they meet, or none of them does.
Status MoeRunner::run_work(const Progress& progress) {
  if (work_.empty()) return {};
  if (shards_.is_alone()) {
    experts_runner_.run(progress.compute, work_);
    return {};
  }
  return experts_runner_.run(progress.compute, shards_, work_, shared_between(), progress.where());
}

// A rank that is done with a call writes the next one's rows while others still read this one's,
// where the next one's inputs may already be here.
std::byte* MoeRunner::shared_between() {
  const size_t row =
      static_cast<size_t>(config_.moe_intermediate_size) * dtype_bytes(options_.row_dtype);
  const auto rows = static_cast<size_t>(between_rows(shape_));
  auto* between = shards_.joint<std::byte>(JointBuffer::kBetween, rows * row);
  const size_t set = calls_run_++ % static_cast<size_t>(shape_.calls_in_flight);
  return between + set * (rows / static_cast<size_t>(shape_.calls_in_flight)) * row;
}

int64_t MoeRunner::between_rows(const ep::DispatchShape& shape) {
  return shape.calls_in_flight * shape.max_rows() * std::min(shape.top_k, shape.slots_per_rank);
}

ep::TokenRange MoeRunner::columns_of(int slice) const {
  const Panels panels = kernels::panels_of_part({.n = config_.hidden_size}, slice, shards_.size());
  const int begin = panels.first * kernels::kPanelWidth;
  return {begin, std::min(panels.last * kernels::kPanelWidth, config_.hidden_size) - begin};
}

size_t MoeRunner::result_bytes() const {
  return static_cast<size_t>(columns_of(shards_.rank()).size) * dtype_bytes(options_.row_dtype);
}

// Where the experts read and write: in the segment, where rows travel as experts take and return
// them; else in scratch.
void MoeRunner::place_rows(const Compute& compute, const kernels::PackedShape& gate) {
  received_.clear();
  returned_.clear();
  messages_.resize(static_cast<size_t>(exchange_.num_messages()));
  for (int slot = 0; slot < shape_.slots_per_rank; ++slot) {
    for (const ep::ExpertRow& row : exchange_.rows_of_slot(slot)) {
      messages_[row.message] = row.row;
      returned_.push_back(row.result);
    }
  }
  const kernels::InputRows operands = received_operands(compute, gate);
  for (int slot = 0; slot < shape_.slots_per_rank; ++slot) {
    for (const ep::ExpertRow& row : exchange_.rows_of_slot(slot)) {
      received_.push_back(operands[row.message]);
    }
  }
  place_results();
}

// The products count a result's columns from its first, whichever slice of them is computed here:
// pointers are to where that would be.
void MoeRunner::place_results() {
  const size_t bytes = result_bytes();
  const size_t before =
      static_cast<size_t>(columns_of(shards_.rank()).begin) * dtype_bytes(options_.row_dtype);
  results_.clear();
  if (!reduced() && options_.combine_format() == kernels::row_format(options_.row_dtype)) {
    for (std::byte* result : returned_) results_.push_back(result - before);
    return;
  }
  auto* plain = plain_results_.get<std::byte>(before + returned_.size() * bytes);
  for (int slot = 0; slot < shape_.slots_per_rank; ++slot) {
    for (const ep::ExpertRow& row : exchange_.rows_of_slot(slot)) {
      results_.push_back(plain + static_cast<size_t>(row.entry) * bytes);
    }
  }
}

// The received rows as operands of gate and up: each once, however many of this rank's experts take
// it.
kernels::InputRows MoeRunner::received_operands(const Compute& compute,
                                                const kernels::PackedShape& gate) {
  const kernels::RowFormat format = options_.dispatch_format();
  const bool decodes = format != kernels::row_format(options_.row_dtype);
  const bool casts = needs_cast(gate, options_.row_dtype);
  const auto count = static_cast<int64_t>(messages_.size());
  const size_t plain_bytes =
      static_cast<size_t>(config_.hidden_size) * dtype_bytes(options_.row_dtype);
  SourceRows plain{{.pointers = messages_.data()},
                   static_cast<int>(count),
                   config_.hidden_size,
                   options_.row_dtype};
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
          format, static_cast<const std::byte*>(messages_[static_cast<size_t>(i)]),
          config_.hidden_size, options_.row_dtype, decoded + static_cast<size_t>(i) * plain_bytes);
    }
    if (casts) cast_rows_to(compute.kernels(), gate, plain, begin, end, operands);
  });
  return casts ? kernels::InputRows{operands, bytes} : plain.rows;
}

void MoeRunner::encode_results(const Compute& compute) {
  const kernels::RowFormat format = options_.combine_format();
  if (format == kernels::row_format(options_.row_dtype)) return;
  const ep::TokenRange columns = columns_of(shards_.rank());
  const size_t before = static_cast<size_t>(columns.begin) * dtype_bytes(options_.row_dtype);
  const auto plain = [&](size_t i) { return static_cast<const std::byte*>(results_[i]) + before; };
  const auto count = static_cast<int64_t>(results_.size());
  compute.pool().parallel_for_ranges(count, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      compute.kernels().encode_row(options_.row_dtype, plain(i), format, columns.size,
                                   returned_[i]);
    }
  });
  if (!options_.measure_noise) return;
  for (size_t i = 0; i < results_.size(); ++i) {
    returned_noise_.add(compute.kernels(), options_.row_dtype, plain(i), format, returned_[i],
                        columns.size);
  }
}

// Combine::kReduced: the one row that goes back for a received token, Σ weight · result in top-k
// order over the experts that are here.
void MoeRunner::sum_results(const Compute& compute) {
  const ep::TokenRange columns = columns_of(shards_.rank());
  const auto width = static_cast<size_t>(columns.size);
  const size_t before = static_cast<size_t>(columns.begin) * dtype_bytes(options_.row_dtype);
  const size_t bytes = result_bytes();
  const std::span<const ep::ReceivedToken> tokens = exchange_.received_tokens();
  const auto* plain = plain_results_.get<std::byte>(before + results_.size() * bytes) + before;
  auto* sums = sums_.get<float>(tokens.size() * width);
  const auto count = static_cast<int64_t>(tokens.size());
  compute.pool().parallel_for_ranges(count, kRowsPerTask, [&](int64_t begin, int64_t end) {
    std::vector<const std::byte*> rows;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const ep::ReceivedToken& token = tokens[i];
      rows.clear();
      for (size_t n = 0; n < token.weights.size(); ++n) {
        rows.push_back(plain + (static_cast<size_t>(token.first_entry) + n) * bytes);
      }
      const kernels::ReduceArgs args{.n = columns.size,
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
    returned_noise_.add(compute.kernels(), Dtype::kF32, sums + i * width, options_.combine_format(),
                        tokens[i].result, columns.size);
  }
}

SourceRows MoeRunner::shared_input(const Compute& compute, const float* h,
                                   std::span<const int32_t> tokens) {
  const SourceRows rows = rows_of(h, tokens);
  if (!travels_plain() || options_.row_dtype == Dtype::kF32) return rows;
  return {encode(compute, rows), rows.num_rows, rows.width, options_.row_dtype};
}

// Of the wanted tokens, once.
void MoeRunner::run_shared(Progress& progress) {
  if (progress.shared_done) return;
  progress.shared_done = true;
  if (!progress.weights.has_shared() || progress.shared != nullptr) return;
  const TraceSpan span(Span::kSharedExpert, progress.call.layer);
  const int hidden = config_.hidden_size;
  const SourceRows rows = rows_of_shared(progress.call, progress.rows);
  float* shared = shared_out_.get<float>(static_cast<size_t>(rows.num_rows) * hidden);
  shared_runner_.run(progress.compute, progress.weights.shared.view(), rows, shared, hidden);
  progress.shared = shared;
}

// x += shared + Σ_k weight_k · result_k, the sum in top-k order: the same order for every
// placement. Combine::kReduced: what came back has its weights in it and is summed in rank order.
void MoeRunner::reduce(const Compute& compute, const MoeCall& call, ep::TokenRange wanted,
                       const float* shared) {
  const TraceSpan span(Span::kReduce, call.layer);
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  const auto top_k = static_cast<size_t>(config_.routing.top_k);
  ones_.assign(top_k, 1.0f);
  compute.pool().parallel_for_ranges(wanted.size, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const size_t at = static_cast<size_t>(wanted.begin + i);
      reduce_token(compute, static_cast<int>(i),
                   reduced() ? ones_.data() : expert_weights_.data() + at * top_k,
                   shared == nullptr ? nullptr : shared + at * hidden,
                   call.x + static_cast<size_t>(wanted_[at]) * hidden);
    }
  });
}

// Slice by slice of its columns.
void MoeRunner::reduce_token(const Compute& compute, int token, const float* weights,
                             const float* shared, float* x) const {
  const auto rows = exchange_.results(token);
  const size_t per_slice = rows.size() / static_cast<size_t>(shape_.num_slices);
  for (int slice = 0; slice < shape_.num_slices; ++slice) {
    const ep::TokenRange columns = columns_of(slice);
    compute.kernels().reduce_experts(
        {.n = columns.size,
         .top_k = static_cast<int>(per_slice),
         .format = options_.combine_format(),
         .rows = rows.data() + static_cast<size_t>(slice) * per_slice,
         .weights = weights,
         .shared = shared == nullptr ? nullptr : shared + columns.begin,
         .x = x + columns.begin});
  }
}

// ---- what is told ----

void MoeRunner::start_totals() {
  counts_.assign(config_.routing.num_experts, 0);
  group_counts_.assign(config_.routing.num_experts, 0);
  sent_entries_.assign(shape_.ep_size, 0);
  experts_cpu_ns_ = 0;
  returned_noise_ = {};
}

std::span<const int32_t> MoeRunner::experts_of(ep::TokenRange tokens) const {
  const size_t top_k = config_.routing.top_k;
  return std::span(experts_).subspan(tokens.begin * top_k, tokens.size * top_k);
}

ep::TokenRange MoeRunner::wanted_of(ep::TokenRange tokens) const {
  const auto first = std::lower_bound(wanted_.begin(), wanted_.end(), tokens.begin);
  const auto last = std::lower_bound(first, wanted_.end(), tokens.begin + tokens.size);
  return {static_cast<int>(first - wanted_.begin()), static_cast<int>(last - first)};
}

std::span<const float> MoeRunner::weights_of(ep::TokenRange wanted) const {
  const size_t top_k = config_.routing.top_k;
  return std::span(expert_weights_).subspan(wanted.begin * top_k, wanted.size * top_k);
}

}  // namespace wideep::model
