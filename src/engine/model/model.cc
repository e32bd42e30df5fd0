// SPDX-License-Identifier: Apache-2.0
//
// The forward pass of all models:
//
//   x = embedding(ids)
//   per layer:  x += mixer(norm(x));  x += mlp_or_moe(norm(x)); or one of them
//   logits = lm_head(norm(x))
//
// A norm is an RMS norm or a layer norm (parts/norms.h). With parallel parts, per layer:
//
//   h = norm(x);  x += mixer(h);  x += mlp_or_moe(h)
//
// Multi-token prediction adds a layer with an input and a final norm of its own, predict():
//
//   x = projection([norm(embedding(next ids)) ‖ norm(hidden)])
//
// Embeddings, what is added to x, and logits are multiplied by the config's scales. With norms after
// the parts, and a dense MLP beside the experts:
//
//   x += norm(mixer(norm(x)))
//   x += norm(norm(mlp(norm(x))) + norm(moe(norm(x))))
//   x *= scalar
//
// With hyper-connections (parts/hyper_connection.h) x is several streams, which a part takes and
// changes by weights of its own; what follows here as x += part(…) is then that.
//
// In a tensor group each rank keeps the residual stream x of its own tokens only. It writes their
// normalised rows h to a buffer that all ranks of the group read, and meets the others (a barrier)
// before a product over the rows of all tokens. A rank alone has all tokens, and meet() returns at
// once.
#include "model/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/trace.h"
#include "base/try.h"

namespace wideep::model {

// A pipeline stage runs only its own layers. x comes from the previous stage and goes to the next.
Status Model::forward(const Batch& batch, const KvLayout& kv, int64_t iteration,
                      const StageRows& rows, std::vector<float>* logits) {
  const MixerCall call{
      compute_, group_, context_, batch, kv, states_, {.iteration = iteration}, mixer_scratch_};
  start(batch);
  rows.in == nullptr ? embed(batch) : copy_in(rows.in);
  prepare(call);
  const int last = std::min(layers_.last, config_.num_layers);
  for (int layer = layers_.first; layer < last; ++layer) {
    MixerCall layer_call = call;
    layer_call.where.layer = layer;
    WIDEEP_TRY(forward_layer(layer_call, layer));
  }
  if (rows.out == nullptr) {
    if (config_.num_prediction_layers > 0) keep_hidden();
    const base::TraceSpan span(base::Span::kHead);
    WIDEEP_TRY(normalize_logit_rows(batch, weights_.end_hyper, weights_.final_norm, call.where));
    return head(static_cast<int>(batch.logit_rows.size()), call.where, logits);
  }
  copy_out(rows.out);
  return {};
}

// What layers share (runs of tokens; for each kind, rotary angles and attention tasks) is computed
// once per iteration.
void Model::prepare(const MixerCall& call) {
  mixer_scratch_.step.start(call.batch, config_.first_choice(), config_.num_attention_kinds());
  for (int kind = 0; kind < config_.num_attention_kinds(); ++kind) {
    for (int layer = layers_.first; layer < layers_.last; ++layer) {
      if (!config_.is_cached(layer) || config_.layers[layer].attention_kind != kind) continue;
      weights_.layers[layer].mixer->prepare(call);
      break;
    }
  }
}

void Model::start(const Batch& batch) {
  own_ = group_.tokens(batch.num_tokens());
  find_rows(batch);
  // Zero, because embed() adds to it.
  const auto num_tokens = static_cast<size_t>(batch.num_tokens());
  x_.assign(num_tokens * static_cast<size_t>(config_.stream_width()), 0.0f);
  h_ = group_.joint<float>(JointBuffer::kInput,
                           num_tokens * static_cast<size_t>(config_.hidden_size));
}

void Model::find_rows(const Batch& batch) {
  all_.resize(static_cast<size_t>(batch.num_tokens()));
  std::iota(all_.begin(), all_.end(), 0);
  wanted_.clear();
  for (const int32_t row : batch.logit_rows) {
    if (row >= own_.begin && row < own_.begin + own_.size) wanted_.push_back(row - own_.begin);
  }
}

// add_scaled onto zeros also converts the embedding's dtype to float32.
void Model::embed(const Batch& batch) {
  const size_t hidden = config_.hidden_size;
  const size_t row_bytes = hidden * dtype_bytes(weights_.dtype);
  for_each_row([&](int64_t token) {
    const size_t id = batch.ids[static_cast<size_t>(token)];
    for (int stream = 0; stream < config_.hyper.num_streams; ++stream) {
      compute_.kernels().add_scaled(
          weights_.dtype, weights_.embedding.data() + id * row_bytes, config_.embedding_scale,
          config_.hidden_size, x_.data() + (token * config_.hyper.num_streams + stream) * hidden);
    }
  });
}

void Model::copy_in(const float* rows) {
  const size_t width = config_.stream_width();
  std::copy_n(rows, own_.size * width, x_.data() + own_.begin * width);
}

void Model::copy_out(float* rows) const {
  const size_t width = config_.stream_width();
  std::copy_n(x_.data() + own_.begin * width, own_.size * width, rows);
}

void Model::normalize(const StreamNorm& norm) {
  const size_t first = static_cast<size_t>(own_.begin) * config_.hidden_size;
  norm.rows(compute_, x_.data() + first, own_.size, h_ + first);
}

// The input of a part, normalised. hyper: the part's connection; empty: there is one stream.
void Model::take_in(const HyperWeights& hyper, const StreamNorm& norm) {
  if (hyper.empty()) return normalize(norm);
  const auto first = static_cast<size_t>(own_.begin);
  const float* collapsed = connection_.enter(
      compute_, hyper, x_.data() + first * static_cast<size_t>(config_.stream_width()), own_.size);
  norm.rows(compute_, collapsed, own_.size, h_ + first * static_cast<size_t>(config_.hidden_size));
}

transport::Written Model::own_input() const {
  return written_rows(h_, static_cast<size_t>(config_.hidden_size), own_);
}

// norm: of y; empty: none, as beside hyper-connections.
void Model::add(const float* y, const StreamNorm& norm) {
  const int hidden = config_.hidden_size;
  if (config_.hyper.is_on()) {
    const auto first = static_cast<size_t>(own_.begin);
    return connection_.leave(compute_, y + first * static_cast<size_t>(hidden), own_.size,
                             x_.data() + first * static_cast<size_t>(config_.stream_width()));
  }
  for_each_row([&](int64_t row) {
    thread_local std::vector<float> normed;
    const float* from = y + row * hidden;
    if (!norm.empty()) {
      normed.resize(norm.weight.size());
      norm.row(compute_.kernels(), from, normed.data());
      from = normed.data();
    }
    compute_.kernels().add_scaled(Dtype::kF32, from, config_.residual_scale, hidden,
                                  x_.data() + row * hidden);
  });
}

void Model::scale(float factor) {
  const int hidden = config_.hidden_size;
  for_each_row(
      [&](int64_t row) { compute_.kernels().scale_row(factor, hidden, x_.data() + row * hidden); });
}

Status Model::forward_layer(const MixerCall& call, int index) {
  const Layer& layer = weights_.layers[index];
  if (layer.mixer != nullptr) {
    const base::TraceSpan span(base::Span::kAttention, index);
    take_in(layer.mixer_hyper, layer.mixer_norm);
    WIDEEP_TRY(group_.meet(own_input(), call.where.named("the layer's input")));
    WIDEEP_TRY_ASSIGN(const float* mixed, layer.mixer->forward(call, h_));
    add(mixed, layer.mixer_output_norm);
  }
  if (config_.has_mlp(index)) {
    if (!config_.parallel_parts) take_in(layer.mlp_hyper, layer.mlp_norm);
    WIDEEP_TRY(layer.moe != nullptr ? forward_moe(call, index) : forward_mlp(call, index));
  }
  if (layer.scalar != 1.0f) scale(layer.scalar);
  return {};
}

// The dense MLP of all tokens of the batch: each rank of the group computes a part of the columns.
Status Model::forward_mlp(const MixerCall& call, int index) {
  const base::TraceSpan span(base::Span::kMlp, index);
  WIDEEP_TRY_ASSIGN(const float* out, run_mlp(call, index));
  add(out, weights_.layers[index].mlp_output_norm);
  return {};
}

// Of the rows in h_; the output is in JointBuffer::kOutput.
Result<const float*> Model::run_mlp(const MixerCall& call, int index) {
  const int num_tokens = call.batch.num_tokens(), hidden = config_.hidden_size;
  WIDEEP_TRY(group_.meet(own_input(), call.where.named("the feed-forward input")));
  return mlp_runner_.run(compute_, group_, weights_.layers[index].mlp.view(),
                         float_rows(h_, hidden, num_tokens, hidden), call.where);
}

// The dense MLP beside the experts. Afterwards h_ has what the experts take: no rank reads the
// MLP's input any more, because all have met since they did.
Status Model::run_beside(const MixerCall& call, int index) {
  const base::TraceSpan span(base::Span::kMlp, index);
  const Layer& layer = weights_.layers[index];
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  WIDEEP_TRY_ASSIGN(const float* out, run_mlp(call, index));
  float* beside = beside_.get<float>(static_cast<size_t>(own_.size) * hidden);
  layer.dense_output_norm.rows(compute_, out + own_.begin * hidden, own_.size, beside);
  normalize(layer.experts_norm);
  return {};
}

// What the experts have put out, with the norms after them.
void Model::add_experts(const Layer& layer) {
  const int hidden = config_.hidden_size;
  float* routed = routed_.get<float>(static_cast<size_t>(own_.size) * hidden);
  const float* beside =
      layer.has_both() ? beside_.get<float>(static_cast<size_t>(own_.size) * hidden) : nullptr;
  for_each_row([&](int64_t row) {
    const int64_t at = (row - own_.begin) * hidden;
    float* y = routed + at;
    const auto normalize = [&](const StreamNorm& norm) { norm.row(compute_.kernels(), y, y); };
    if (beside != nullptr) {
      normalize(layer.experts_output_norm);
      compute_.kernels().add_scaled(Dtype::kF32, beside + at, 1.0f, hidden, y);
    }
    normalize(layer.mlp_output_norm);
    compute_.kernels().add_scaled(Dtype::kF32, y, 1.0f, hidden, x_.data() + row * hidden);
  });
}

// Each rank routes its own tokens, and dispatch takes their rows to the ranks of the experts. A
// rank alone leaves the shared expert to the MoeRunner, which runs it while it would wait for rows.
// A tensor group must run it here, because it is collective over the group.
Status Model::forward_moe(const MixerCall& call, int index) {
  const Layer& layer = weights_.layers[index];
  const MoeWeights& weights = *layer.moe;
  const size_t hidden = config_.hidden_size, first = own_.begin * hidden;
  if (layer.has_both()) WIDEEP_TRY(run_beside(call, index));
  MoeCall moe{.layer = index,
              .iteration = call.where.iteration,
              .num_tokens = own_.size,
              .tokens_of_ranks = call.batch.tokens_of_ranks,
              .h = h_ + first,
              .ids = call.batch.ids.data() + own_.begin,
              .x = x_.data() + first};
  if (!weights.router_norm.empty()) {
    moe.router_h = router_rows(layer.mlp_hyper, weights.router_norm, &router_h_);
  }
  const bool has_norm = !layer.mlp_output_norm.empty();
  if (has_norm || config_.hyper.is_on()) {
    moe.x = routed_.get<float>(static_cast<size_t>(own_.size) * hidden);
    std::fill_n(moe.x, static_cast<size_t>(own_.size) * hidden, 0.0f);
  }
  // After the last layer only tokens with logits are read, so the others are not sent to experts.
  const bool last = index + 1 == config_.num_all_layers();
  if (last) moe.wanted = wanted_;
  if (weights.has_shared() && !group_.is_alone()) {
    const std::vector<int32_t>& tokens = last ? call.batch.logit_rows : all_;
    // The shared expert's rows of the own tokens begin at `own`: `tokens` is ascending.
    const auto own = std::lower_bound(tokens.begin(), tokens.end(), own_.begin) - tokens.begin();
    WIDEEP_TRY_ASSIGN(const float* shared, run_shared(call, weights, tokens));
    moe.shared = shared + static_cast<size_t>(own) * hidden;
  }
  if (moe_.looks_ahead()) moe.next = next_moe(call.batch, index + 1);
  WIDEEP_TRY(moe_.forward(compute_, weights, moe));
  if (has_norm) {
    add_experts(layer);
  } else if (config_.hyper.is_on()) {
    connection_.leave(
        compute_, moe.x, own_.size,
        x_.data() + static_cast<size_t>(own_.begin) * static_cast<size_t>(config_.stream_width()));
  }
  return {};
}

// The residual stream of the own tokens, normalised.
const float* Model::router_rows(const HyperWeights& hyper, const StreamNorm& norm,
                                Scratch* scratch) {
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  const float* x = x_.data() + own_.begin * static_cast<size_t>(config_.stream_width());
  if (!hyper.empty()) x = ahead_connection_.collapse(compute_, hyper, x, own_.size);
  float* rows = scratch->get<float>(static_cast<size_t>(own_.size) * hidden);
  norm.rows(compute_, x, own_.size, rows);
  return rows;
}

// The feed-forward part that follows, if it has experts, as if only its norm came before its router.
NextMoe Model::next_moe(const Batch& batch, int index) {
  const int last = std::min(layers_.last, config_.num_layers);
  while (index < last && !config_.has_mlp(index)) ++index;
  if (index >= last) return {};
  const Layer& layer = weights_.layers[static_cast<size_t>(index)];
  if (layer.moe == nullptr) return {};
  const StreamNorm* norm = layer.has_both() ? &layer.experts_norm : &layer.mlp_norm;
  if (config_.parallel_parts) norm = &layer.mixer_norm;
  if (!layer.moe->router_norm.empty()) norm = &layer.moe->router_norm;
  const float* h = router_rows(layer.mlp_hyper, *norm, &next_h_);
  NextMoe next{.layer = index,
               .weights = layer.moe.get(),
               .h = h,
               .ids = batch.ids.data() + own_.begin,
               .wanted = {}};
  if (index + 1 == config_.num_all_layers()) next.wanted = wanted_;
  return next;
}

Result<const float*> Model::run_shared(const MixerCall& call, const MoeWeights& weights,
                                       std::span<const int32_t> tokens) {
  const base::TraceSpan span(base::Span::kSharedExpert, call.where.layer);
  WIDEEP_TRY(group_.meet(own_input(), call.where.named("the shared expert's input")));
  return mlp_runner_.run(compute_, group_, weights.shared.view(),
                         moe_.shared_input(compute_, h_, tokens), call.where);
}

// Those among batch.logit_rows that are of own tokens: neighbours, because logit_rows ascends.
ep::TokenRange Model::own_logit_rows(const Batch& batch) const {
  const auto first = std::ranges::lower_bound(batch.logit_rows, own_.begin);
  return {.begin = static_cast<int>(first - batch.logit_rows.begin()),
          .size = static_cast<int>(wanted_.size())};
}

// Writes the rows of batch.logit_rows, normalised, to h_. Each rank of a group has its own rows
// among them; after the meeting all ranks can read all.
Status Model::normalize_logit_rows(const Batch& batch, const HyperWeights& end,
                                   const StreamNorm& norm, const transport::Awaited& where) {
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  const ep::TokenRange own_rows = own_logit_rows(batch);
  const float* x =
      x_.data() + static_cast<size_t>(own_.begin) * static_cast<size_t>(config_.stream_width());
  if (config_.hyper.is_on()) x = connection_.collapse(compute_, end, x, own_.size);
  float* h = h_ + static_cast<size_t>(own_rows.begin) * hidden;
  for (const int32_t row : wanted_) {
    norm.row(compute_.kernels(), x + static_cast<size_t>(row) * hidden, h);
    h += hidden;
  }
  return group_.meet(written_rows(h_, hidden, own_rows), where.named("the last layer's output"));
}

// The LM head, on the first num_rows rows of h_. Each rank of a group computes a part of the
// vocabulary for all of them.
Status Model::head(int num_rows, const transport::Awaited& where, std::vector<float>* logits) {
  const int hidden = config_.hidden_size;
  const size_t vocab = config_.vocab_size;
  logits->resize(num_rows * vocab);
  const kernels::PackedMatrix& lm_head = weights_.lm_head.packed;
  const Rows rows = compute_.cast(lm_head.shape, float_rows(h_, hidden, num_rows, hidden), cast_);
  float* out = group_.is_alone() ? logits->data()
                                 : group_.joint<float>(JointBuffer::kLogits, logits->size());
  const Product product{&lm_head, out, vocab, group_.panels(lm_head.shape),
                        bias_of(weights_.head_bias)};
  compute_.matmul(rows, std::span(&product, 1));
  WIDEEP_TRY(
      group_.meet(written_columns(out, config_.vocab_size, sizeof(float), num_rows, product.panels),
                  where.named("logits")));
  if (!group_.is_alone()) std::copy_n(out, logits->size(), logits->data());
  finish_logits(num_rows, logits->data());
  return {};
}

void Model::finish_logits(int num_rows, float* logits) const {
  const auto vocab = static_cast<size_t>(config_.vocab_size);
  if (config_.logits_scale != 1.0f) {
    compute_.pool().parallel_for(num_rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        compute_.kernels().scale_row(config_.logits_scale, config_.vocab_size,
                                     logits + static_cast<size_t>(row) * vocab);
      }
    });
  }
  if (config_.logits_cap == 0.0f) return;
  constexpr size_t kPiece = 4096;  // a tanh takes about ten nanoseconds
  const size_t count = static_cast<size_t>(num_rows) * vocab;
  const auto pieces = static_cast<int64_t>((count + kPiece - 1) / kPiece);
  compute_.pool().parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    const size_t last = std::min(static_cast<size_t>(end) * kPiece, count);
    for (size_t i = static_cast<size_t>(begin) * kPiece; i < last; ++i) {
      logits[i] = config_.logits_cap * std::tanh(logits[i] / config_.logits_cap);
    }
  });
}

}  // namespace wideep::model
