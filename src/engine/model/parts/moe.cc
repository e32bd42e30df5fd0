// SPDX-License-Identifier: Apache-2.0
//
// run_chunks() orders the steps of the chunks so that a rank has something to compute while it
// waits: rows of the next chunk are sent, or the shared expert runs, before it waits for rows;
// results are collected as late as their buffers allow. Progress counts how many chunks have begun,
// were sent and were reduced; each step is in order of the chunks, on all ranks alike.
//
// No step may wait for something that another rank sends only after it has heard from this one. So
// counts are announced even where this rank does not go on yet (send_chunk).
#include "model/parts/moe.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/trace.h"
#include "base/try.h"
#include "ep/check_shapes.h"
#include "model/parts/resident_experts.h"

namespace wideep::model {

using base::Span;
using base::TraceSpan;

namespace {

void add_counts(std::span<const int32_t> values, std::span<int32_t> sums) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

}  // namespace

MoeRunner::MoeRunner(const ModelConfig& config, const balance::ModelPlacement& placement,
                     const ExpertSlots& slots, transport::Endpoint& endpoint,
                     const ep::BufferLayout& layout, const MoeOptions& options, TensorGroup shards)
    : config_(config),
      endpoint_(endpoint),
      shape_(layout.shape()),
      share_update_(placement.share_update),
      counts_slots_(options.count_slots),
      routing_(config, shape_, endpoint.rank(), options.perfect_router),
      next_routing_(config, shape_, endpoint.rank(), options.perfect_router),
      chooser_(shape_, endpoint.rank()),
      token_rows_(config, shape_.num_slices, options),
      exchange_(endpoint, layout),
      resident_(options.resident),
      experts_(config, slots, shape_, options, std::move(shards)) {
  WIDEEP_CHECK_GE(shape_.row_bytes,
                  kernels::row_bytes(options.dispatch_format(), config.expert_hidden_size()));
  WIDEEP_CHECK_GE(shape_.result_bytes,
                  kernels::row_bytes(options.combine_format(), experts_.rows().columns().size));
  for (const auto& [layer, layer_placement] : placement.layers) {
    set_placement(layer, layer_placement, {});
  }
}

Status MoeRunner::forward(const Compute& compute, const MoeWeights& weights, const MoeCall& call) {
  if (!exchange_.is_open()) WIDEEP_TRY(open(compute));
  routing_.route(compute, weights, call);
  start_totals();
  const int64_t before = worked_ns(compute);
  const SourceRows own = token_rows_.wanted_rows(call, routing_.wanted());
  const SourceRows taken = weights.has_latent() ? latent_rows(compute, weights, own) : own;
  const kernels::InputRows rows = token_rows_.encode(compute, taken, routing_.input_weights());
  Progress progress{compute, weights, call, rows,
                    ep::num_chunks(call.tokens_of_ranks, shape_.max_group_tokens)};
  if (weights.has_latent()) {
    const size_t count =
        static_cast<size_t>(call.num_tokens) * static_cast<size_t>(config_.moe_latent_size);
    progress.sums = latent_sums_.get<float>(count);
    std::fill_n(progress.sums, count, 0.0f);
  }
  // The gate of a shared expert that the caller has computed reads the input, which other ranks of
  // the tensor group overwrite as soon as they have their results.
  if (call.shared != nullptr) run_shared(progress);
  WIDEEP_TRY(run_chunks(progress));
  if (weights.has_latent()) add_latent(progress);
  totals_.exchange_cpu_ns =
      worked_ns(compute) - before - totals_.experts_cpu_ns - totals_.shared_cpu_ns;
  report(call);
  return {};
}

// Called by the first forward(), because the row sum needs the kernels of `compute`.
Status MoeRunner::open(const Compute& compute) {
  WIDEEP_TRY(ep::check_shapes_match(shape_, endpoint_));
  exchange_.set_row_sum(experts_.rows().row_sum(compute.kernels()));
  return exchange_.open();
}

// ---- chunks ----

// While the rows of a chunk travel, this rank first sends the next chunk, if that needs no waiting,
// and then runs the shared expert if rows are still missing. start_combine only starts: results of
// a chunk are summed when its buffers are needed again, or at the end.
Status MoeRunner::run_chunks(Progress& progress) {
  for (int chunk = 0; chunk < progress.num_chunks; ++chunk) {
    WIDEEP_TRY(send_chunk(progress, chunk, Wait::kYes));
    if (shape_.calls_in_flight > 1) WIDEEP_TRY(send_chunk(progress, chunk + 1, Wait::kNo));
    if (!exchange_.rows_arrived()) run_shared(progress);
    WIDEEP_TRY(receive(progress));
    if (resident_ != nullptr) order_experts(progress, chunk);
    WIDEEP_TRY(run_experts(progress, chunk));
    WIDEEP_TRY(exchange_.start_combine());
  }
  while (progress.reduced < progress.num_chunks) WIDEEP_TRY(reduce_chunk(progress));
  return {};
}

// Sends the chunk's rows if they are not sent yet. Wait::kNo: does as much as it can without
// waiting; a later call continues. If all buffers are in use, the oldest chunk is reduced first,
// which frees its buffers.
Status MoeRunner::send_chunk(Progress& progress, int chunk, Wait wait) {
  if (chunk == progress.num_chunks || chunk < progress.sent) return {};
  const bool by_counts = splits_by_counts(progress);
  if (chunk == progress.begun) {
    if (chunk - progress.reduced == shape_.calls_in_flight) {
      if (wait == Wait::kNo && !exchange_.results_arrived()) return {};
      WIDEEP_TRY(reduce_chunk(progress));
    }
    WIDEEP_TRY(begin_chunk(progress));
    // Announced even if this rank does not wait now: other ranks may wait for its counts.
    if (by_counts) exchange_.announce_counts();
  }
  if (by_counts && wait == Wait::kNo && !exchange_.counts_arrived()) return {};
  const ep::TokenRange tokens = progress.tokens_of(chunk);
  const ep::TokenRange wanted = routing_.wanted_of(tokens);
  WIDEEP_TRY(choose_slots(progress, tokens));
  const TraceSpan span(Span::kPush, progress.call.layer);
  WIDEEP_TRY(exchange_.start_dispatch(
      static_cast<const std::byte*>(progress.rows[wanted.begin]), progress.rows.stride, wanted.size,
      chunk_.slots, reduced() ? routing_.weights_of(wanted) : std::span<const float>()));
  add_counts(chunk_.counts, totals_.counts);
  ++progress.sent;
  return {};
}

// Publishes how many tokens of the next chunk each expert gets from this rank.
Status MoeRunner::begin_chunk(Progress& progress) {
  const TraceSpan span(Span::kBegin, progress.call.layer);
  const int chunk = progress.begun++;
  chunk_.tokens_of_ranks.clear();
  for (const int32_t tokens : progress.call.tokens_of_ranks) {
    chunk_.tokens_of_ranks.push_back(ep::chunk_of(tokens, chunk, progress.num_chunks).size);
  }
  chunk_.counts.assign(config_.routing.num_experts, 0);
  for (const int32_t expert : routing_.experts_of(progress.tokens_of(chunk))) {
    ++chunk_.counts[expert];
  }
  return exchange_.begin(chunk_.counts, chunk_.tokens_of_ranks);
}

Status MoeRunner::receive(const Progress& progress) {
  {
    const TraceSpan span(Span::kAwaitRows, progress.call.layer);
    WIDEEP_TRY(exchange_.finish_dispatch(progress.where()));
  }
  for (int rank = 0; rank < shape_.ep_size; ++rank) {
    add_counts(exchange_.received_counts(rank), totals_.group_counts);
  }
  return {};
}

// Sums up the results of the oldest chunk that is not reduced. The shared expert's output is part
// of the sum, so it must be computed first.
Status MoeRunner::reduce_chunk(Progress& progress) {
  run_shared(progress);
  {
    const TraceSpan span(Span::kAwaitResults, progress.call.layer);
    WIDEEP_TRY(exchange_.finish_combine(progress.where()));
  }
  const TraceSpan span(Span::kReduce, progress.call.layer);
  const ep::TokenRange wanted = routing_.wanted_of(progress.tokens_of(progress.reduced));
  const auto first = static_cast<size_t>(wanted.begin);
  // What latent experts put out has another width: add_latent() adds the shared expert's output.
  const bool adds_shared = progress.shared != nullptr && !progress.weights.has_latent();
  token_rows_.add_results(
      progress.compute, exchange_,
      {.tokens = routing_.wanted().subspan(first, static_cast<size_t>(wanted.size)),
       .weights = reduced() ? std::span<const float>() : routing_.weights_of(wanted),
       .shared = adds_shared ? progress.shared + first * config_.hidden_size : nullptr,
       .x = progress.sums});
  ++progress.reduced;
  return {};
}

// ---- latent experts ----

SourceRows MoeRunner::latent_rows(const Compute& compute, const MoeWeights& weights,
                                  const SourceRows& rows) {
  const int latent = config_.moe_latent_size;
  const kernels::PackedMatrix& into = weights.latent_in.packed;
  float* out =
      latent_rows_.get<float>(static_cast<size_t>(rows.num_rows) * static_cast<size_t>(latent));
  compute.matmul(compute.cast(into.shape, rows, latent_cast_), into, out, latent);
  return float_rows(out, static_cast<size_t>(latent), rows.num_rows, latent);
}

// x += residual_scale · (shared + out · Σ_k weight_k · result_k), of the wanted tokens.
void MoeRunner::add_latent(Progress& progress) {
  const Compute& compute = progress.compute;
  const std::span<const int32_t> wanted = routing_.wanted();
  const auto latent = static_cast<size_t>(config_.moe_latent_size);
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  wanted_sums_.clear();
  for (const int32_t token : wanted) {
    wanted_sums_.push_back(progress.sums + static_cast<size_t>(token) * latent);
  }
  const SourceRows rows{{.pointers = wanted_sums_.data()},
                        static_cast<int>(wanted.size()),
                        config_.moe_latent_size,
                        Dtype::kF32};
  const kernels::PackedMatrix& out_of = progress.weights.latent_out.packed;
  float* out = latent_out_.get<float>(wanted.size() * hidden);
  compute.matmul(compute.cast(out_of.shape, rows, latent_cast_), out_of, out, config_.hidden_size);
  constexpr int64_t kRowsPerTask = 8;  // a row takes about a microsecond
  compute.pool().parallel_for_ranges(rows.num_rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      float* row = out + i * hidden;
      if (progress.shared != nullptr) {
        compute.kernels().add_scaled(Dtype::kF32, progress.shared + i * hidden, 1.0f,
                                     config_.hidden_size, row);
      }
      compute.kernels().add_scaled(Dtype::kF32, row, config_.residual_scale * config_.experts_scale,
                                   config_.hidden_size,
                                   progress.call.x + static_cast<size_t>(wanted[i]) * hidden);
    }
  });
}

// ---- slot choice ----

bool MoeRunner::splits_by_counts(const Progress& progress) const {
  return share_update_ == balance::ShareUpdate::kIteration &&
         (chooser_.has_replicas(progress.call.layer) || lends(progress));
}

// Whether any chunk may have loans, as all ranks know before they have seen the counts. Where ranks
// do not know each other's tokens, they always look.
bool MoeRunner::lends(const Progress& progress) const {
  const std::span<const int32_t> tokens = progress.call.tokens_of_ranks;
  const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
  const bool is_known = !tokens.empty();
  return shape_.borrowed_slots > 0 &&
         (!is_known || ep::RowSharing::pays(shape_, all * config_.routing.top_k));
}

// Chooses slots for all tokens of the chunk, because the split among replicas counts all of them.
// Then only the slots of the wanted tokens are kept, which are the ones that are sent.
Status MoeRunner::choose_slots(const Progress& progress, ep::TokenRange tokens) {
  const int layer = progress.call.layer;
  const TraceSpan span(Span::kChooseSlots, layer);
  if (splits_by_counts(progress)) {
    WIDEEP_TRY(exchange_.await_counts(progress.where()));
    chooser_.split_by_counts(layer, exchange_.counts_of_ranks());
  } else {
    chooser_.split_by_given_shares(layer, chunk_.counts);
  }
  const std::span<const int32_t> borrowed = chooser_.borrowed_experts();
  chunk_.borrowed[progress.sent & 1].assign(borrowed.begin(), borrowed.end());
  const std::span<const int32_t> experts = routing_.experts_of(tokens);
  chunk_.slots.resize(experts.size());
  chooser_.choose(layer, experts, chunk_.slots);
  // Every slice of an expert gets the row.
  for (const int32_t slot : chunk_.slots) {
    const int owner = slot / shape_.local_slots();
    for (int to = owner; to < shape_.ep_size; to += shape_.num_owners()) {
      ++totals_.sent_entries[to];
    }
  }
  if (counts_slots_) {
    for (const int32_t slot : chunk_.slots) ++totals_.slot_counts[slot];
  }
  keep_wanted_slots(tokens);
  return {};
}

void MoeRunner::keep_wanted_slots(ep::TokenRange tokens) {
  const ep::TokenRange range = routing_.wanted_of(tokens);
  if (range.size == tokens.size) return;
  const int top_k = config_.routing.top_k;
  for (int i = 0; i < range.size; ++i) {
    const int64_t token = routing_.wanted()[range.begin + i] - tokens.begin;
    std::copy_n(chunk_.slots.begin() + token * top_k, top_k,
                chunk_.slots.begin() + int64_t{i} * top_k);
  }
  chunk_.slots.resize(static_cast<size_t>(range.size) * top_k);
}

// ---- experts ----

// On the critical path: this thread's processor time without that of waits, plus what the busiest
// other thread needed beyond it (ThreadPool::lag_cpu_ns).
int64_t MoeRunner::worked_ns(const Compute& compute) const {
  return base::thread_cpu_ns() - endpoint_.waited_cpu_ns() + compute.pool().lag_cpu_ns();
}

// Those of the chunk that are absent, and at the end what the next layer will probably want.
void MoeRunner::order_experts(const Progress& progress, int chunk) {
  experts_.choose(progress.compute, exchange_, progress.where(), tokens_of_all(progress));
  if (chunk + 1 == progress.num_chunks) look_ahead(progress);
}

// Measures the critical path as worked_ns() does.
Status MoeRunner::run_experts(Progress& progress, int chunk) {
  const TraceSpan span(Span::kExperts, progress.call.layer);
  const base::ThreadPool& pool = progress.compute.pool();
  const int64_t before = base::thread_cpu_ns() + pool.lag_cpu_ns() + totals_.shared_cpu_ns;
  if (resident_ != nullptr) {
    experts_.run_chosen(progress.compute, exchange_, progress.where().layer,
                        [&] { run_shared(progress); });
  } else {
    WIDEEP_TRY(
        experts_.run(progress.compute, exchange_, chunk_.borrowed[chunk & 1], progress.where()));
  }
  totals_.experts_cpu_ns +=
      base::thread_cpu_ns() + pool.lag_cpu_ns() - before - totals_.shared_cpu_ns;
  totals_.experts_rows += exchange_.num_entries();
  return {};
}

bool MoeRunner::looks_ahead() const { return resident_ != nullptr && resident_->looks_ahead(); }

// What the next layer's router would choose now: the rows change little from layer to layer. Only
// of this rank's tokens, and only for reading.
void MoeRunner::look_ahead(const Progress& progress) {
  const NextMoe& next = progress.call.next;
  if (next.weights == nullptr) return;
  next_routing_.route(progress.compute, *next.weights,
                      {.layer = next.layer,
                       .num_tokens = progress.call.num_tokens,
                       .h = next.h,
                       .ids = next.ids,
                       .wanted = next.wanted});
  next_weights_.assign(config_.routing.num_experts, 0.0F);
  const auto num_wanted = static_cast<int>(next_routing_.wanted().size());
  const std::span<const float> weights = next_routing_.weights_of({0, num_wanted});
  const auto top_k = static_cast<size_t>(config_.routing.top_k);
  for (size_t i = 0; i < next_routing_.wanted().size(); ++i) {
    const std::span<const int32_t> experts =
        next_routing_.experts_of({next_routing_.wanted()[i], 1});
    for (size_t k = 0; k < top_k; ++k) next_weights_[experts[k]] += weights[i * top_k + k];
  }
  resident_->expect(next.layer, next_weights_);
}

// Where ranks do not know each other's tokens, there is one chunk, and its counts are of all.
int64_t MoeRunner::tokens_of_all(const Progress& progress) const {
  const auto sum = [](std::span<const int32_t> values) {
    return std::accumulate(values.begin(), values.end(), int64_t{0});
  };
  const std::span<const int32_t> tokens = progress.call.tokens_of_ranks;
  return tokens.empty() ? sum(totals_.group_counts) / config_.routing.top_k : sum(tokens);
}

// The shared expert on all wanted tokens; at most once per layer call.
void MoeRunner::run_shared(Progress& progress) {
  if (progress.shared_done) return;
  progress.shared_done = true;
  if (!progress.weights.has_shared()) return;
  const TraceSpan span(Span::kSharedExpert, progress.call.layer);
  const int64_t before = worked_ns(progress.compute);
  add_shared(progress);
  totals_.shared_cpu_ns += worked_ns(progress.compute) - before;
}

// Unless the caller has computed it.
void MoeRunner::add_shared(Progress& progress) {
  const int hidden = config_.hidden_size;
  if (progress.shared != nullptr) return gate_shared(progress);
  const SourceRows rows = token_rows_.shared_input(progress.call, routing_.wanted(), progress.rows);
  float* shared = shared_out_.get<float>(static_cast<size_t>(rows.num_rows) * hidden);
  shared_runner_.run(progress.compute, progress.weights.shared.view(), rows, shared, hidden);
  progress.shared = shared;
  gate_shared(progress);
}

// Multiplies each row of the shared expert's output by σ(gate · h). In float32 from the rows before
// their encoding, so that the gate does not depend on how rows travel.
void MoeRunner::gate_shared(Progress& progress) {
  if (!progress.weights.has_shared_gate()) return;
  const Compute& compute = progress.compute;
  const int hidden = config_.hidden_size;
  const SourceRows rows = token_rows_.rows_of(progress.call.h, routing_.wanted());
  const auto count = static_cast<size_t>(rows.num_rows);
  float* gates = shared_gates_.get<float>(count);
  const kernels::PackedMatrix& gate = progress.weights.shared_gate.packed;
  compute.matmul(compute.cast(gate.shape, rows, shared_gates_cast_), gate, gates, 1);
  float* gated = shared_out_.get<float>(count * static_cast<size_t>(hidden));
  constexpr int64_t kRowsPerTask = 8;  // a row takes about a microsecond
  compute.pool().parallel_for_ranges(rows.num_rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = gated + i * hidden;
      if (progress.shared != gated) std::copy_n(progress.shared + i * hidden, hidden, row);
      compute.kernels().scale_row(1.0f / (1.0f + std::exp(-gates[i])), hidden, row);
    }
  });
  progress.shared = gated;
}

// ---- reports to the observer ----

void MoeRunner::start_totals() {
  totals_.counts.assign(config_.routing.num_experts, 0);
  totals_.group_counts.assign(config_.routing.num_experts, 0);
  totals_.sent_entries.assign(shape_.ep_size, 0);
  if (counts_slots_) totals_.slot_counts.assign(shape_.num_slots(), 0);
  totals_.experts_cpu_ns = totals_.shared_cpu_ns = totals_.exchange_cpu_ns = 0;
  totals_.experts_rows = 0;
  experts_.rows().clear_noise();
}

void MoeRunner::report(const MoeCall& call) const {
  if (observer_ == nullptr) return;
  observer_->on_layer({.layer = call.layer,
                       .experts = routing_.experts(),
                       .counts = totals_.counts,
                       .group_counts = totals_.group_counts,
                       .sent_entries = totals_.sent_entries,
                       .slot_counts = totals_.slot_counts,
                       .experts_cpu_ns = totals_.experts_cpu_ns,
                       .shared_cpu_ns = totals_.shared_cpu_ns,
                       .exchange_cpu_ns = totals_.exchange_cpu_ns,
                       .experts_rows = totals_.experts_rows,
                       .dispatched = token_rows_.noise(),
                       .returned = experts_.rows().noise()});
}

}  // namespace wideep::model
