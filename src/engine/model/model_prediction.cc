// SPDX-License-Identifier: Apache-2.0
//
// Multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2): Model::predict(), a pass of
// one prediction layer. Which passes follow each other is up to engine/speculation/mtp_drafter.h.
//
// With hyper-connections the layer continues all residual streams, as DeepSeek-V4's own program
// (inference/model.py, MTPBlock), vLLM and SGLang compute it.
//
// The layer itself is forward_layer(), like any other; only its input and its end are here. A draft
// is the likeliest token, so ranks that share the head exchange a maximum for each row instead of
// logits. Ranks with batches of their own must first bring their rows together; how many each has
// was agreed on before, so that none has to ask.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/trace.h"
#include "base/try.h"
#include "model/lm_head_size.h"
#include "model/model.h"

namespace wideep::model {

void Model::keep_hidden() {
  const int hidden = config_.hidden_size;
  if (config_.hyper.is_on()) {
    hidden_ = x_;
    return;
  }
  hidden_.resize(x_.size());
  for_each_row([&](int64_t row) {
    weights_.final_norm.row(compute_.kernels(), x_.data() + row * hidden,
                            hidden_.data() + row * hidden);
  });
}

// x: null: zeros.
void Model::normalize_input(const float* x, const StreamNorm& norm, float* y) const {
  if (x == nullptr) {
    std::fill_n(y, config_.hidden_size, 0.0f);
    return;
  }
  norm.row(compute_.kernels(), x, y);
}

// Each rank of a group makes the input rows of its own tokens.
void Model::enter_prediction(const PredictionCall& call, const PredictionWeights& prediction) {
  embed(call.batch);
  if (config_.hyper.is_on()) return enter_streams(call, prediction);
  const int hidden = config_.hidden_size;
  float* joined = joined_.get<float>(static_cast<size_t>(own_.size) * 2 * hidden);
  for_each_row([&](int64_t row) {
    float* both = joined + (row - own_.begin) * 2 * hidden;
    normalize_input(x_.data() + row * hidden, prediction.embedding_norm, both);
    normalize_input(call.before[static_cast<size_t>(row)], prediction.hidden_norm, both + hidden);
  });
  const kernels::PackedMatrix& projection = prediction.projection.packed;
  const Rows rows =
      compute_.cast(projection.shape, float_rows(joined, 2 * hidden, own_.size, 2 * hidden), cast_);
  compute_.matmul(rows, projection, x_.data() + int64_t{own_.begin} * hidden, hidden);
}

// The same of residual streams. embed() has filled all of them alike.
void Model::enter_streams(const PredictionCall& call, const PredictionWeights& prediction) {
  const int hidden = config_.hidden_size, num_streams = config_.hyper.num_streams;
  const int width = config_.stream_width();
  const auto own_streams = static_cast<size_t>(own_.size) * static_cast<size_t>(width);
  const auto own_rows = static_cast<size_t>(own_.size) * static_cast<size_t>(hidden);
  float* streams = joined_.get<float>(own_streams + 2 * own_rows);
  float* embeddings = streams + own_streams;
  float* projected = embeddings + own_rows;
  for_each_row([&](int64_t row) {
    const int64_t own = row - own_.begin;
    normalize_input(x_.data() + row * width, prediction.embedding_norm, embeddings + own * hidden);
    const float* before = call.before[static_cast<size_t>(row)];
    for (int stream = 0; stream < num_streams; ++stream) {
      const int64_t at = int64_t{stream} * hidden;
      normalize_input(before == nullptr ? nullptr : before + at, prediction.hidden_norm,
                      streams + own * width + at);
    }
  });
  const auto project = [&](const weights::Matrix& matrix, const float* from, int rows, float* to) {
    const kernels::PackedMatrix& packed = matrix.packed;
    const auto stride = static_cast<size_t>(hidden);
    compute_.matmul(compute_.cast(packed.shape, float_rows(from, stride, rows, hidden), cast_),
                    packed, to, stride);
  };
  project(prediction.projection, embeddings, own_.size, projected);
  project(prediction.stream_projection, streams, own_.size * num_streams,
          x_.data() + int64_t{own_.begin} * width);
  for_each_row([&](int64_t row) {
    for (int stream = 0; stream < num_streams; ++stream) {
      compute_.kernels().add_scaled(Dtype::kF32, projected + (row - own_.begin) * hidden, 1.0f,
                                    hidden, x_.data() + row * width + int64_t{stream} * hidden);
    }
  });
}

Status Model::predict(const PredictionCall& call, const KvLayout& kv, int64_t iteration,
                      std::vector<int32_t>* tokens) {
  const int layer = config_.num_layers + call.layer;
  const Layer& weights = weights_.layers[static_cast<size_t>(layer)];
  const transport::Awaited where{.layer = layer, .iteration = iteration};
  const MixerCall mixer_call{compute_, group_,  context_, call.batch,
                             kv,       states_, where,    mixer_scratch_};
  start(call.batch);
  enter_prediction(call, *weights.prediction);
  mixer_scratch_.step.start(call.batch, config_.first_choice(), config_.num_attention_kinds());
  weights.mixer->prepare(mixer_call);
  WIDEEP_TRY(forward_layer(mixer_call, layer));
  const base::TraceSpan span(base::Span::kHead);
  WIDEEP_TRY(keep_outputs(call, *weights.prediction, where));

  const auto num_rows = static_cast<int>(call.batch.logit_rows.size());
  HeadShare share = head_share(num_rows);
  if (!heads_.ranks.is_alone()) {
    share = gather_rows(num_rows, call.rows_of_ranks);
    WIDEEP_TRY(heads_.ranks.meet(where.named("the rows of the LM head")));
  }
  find_maxima(share);
  if (share.maxima != nullptr) {
    TensorGroup& group = heads_.ranks.is_alone() ? group_ : heads_.ranks;
    const size_t first = static_cast<size_t>(share.part) * share.all_rows + share.first_row;
    WIDEEP_TRY(group.meet({.first = share.maxima + first,
                           .width = static_cast<size_t>(share.num_rows) * sizeof(Likeliest)},
                          where.named("maxima of logits")));
  }
  choose_likeliest(share, tokens);
  return {};
}

// Normalises the rows that another layer continues, all of them, or the logit rows after the last
// layer. All ranks of a group keep all rows: the next call may deal them to other ranks.
Status Model::keep_outputs(const PredictionCall& call, const PredictionWeights& prediction,
                           const transport::Awaited& where) {
  if (config_.hyper.is_on()) return keep_streams(call, prediction, where);
  const StreamNorm& norm = prediction.final_norm;
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  const std::vector<int32_t>& logit_rows = call.batch.logit_rows;
  if (call.layer + 1 == config_.num_prediction_layers) {
    WIDEEP_TRY(normalize_logit_rows(call.batch, {}, norm, where));
    hidden_.assign(h_, h_ + logit_rows.size() * hidden);
    logit_rows_ = hidden_;
    return {};
  }
  normalize(norm);
  WIDEEP_TRY(group_.meet(own_input(), where.named("the prediction layer's output")));
  hidden_.assign(h_, h_ + static_cast<size_t>(call.batch.num_tokens()) * hidden);
  logit_rows_.resize(logit_rows.size() * hidden);
  for (size_t i = 0; i < logit_rows.size(); ++i) {
    std::copy_n(output(logit_rows[i]), hidden, logit_rows_.data() + i * hidden);
  }
  return {};
}

// The same of residual streams, which only the logit rows are collapsed from.
Status Model::keep_streams(const PredictionCall& call, const PredictionWeights& prediction,
                           const transport::Awaited& where) {
  const Batch& batch = call.batch;
  const auto hidden = static_cast<size_t>(config_.hidden_size);
  const auto width = static_cast<size_t>(config_.stream_width());
  WIDEEP_TRY(normalize_logit_rows(batch, prediction.end_hyper, prediction.final_norm, where));
  logit_rows_.assign(h_, h_ + batch.logit_rows.size() * hidden);
  const bool is_last = call.layer + 1 == config_.num_prediction_layers;
  const ep::TokenRange own_rows = is_last ? own_logit_rows(batch) : own_;
  const size_t num_rows =
      is_last ? batch.logit_rows.size() : static_cast<size_t>(batch.num_tokens());
  hidden_.resize(num_rows * width);
  // Of kOutput nobody reads any more what the layer has put out: all have met since.
  float* all = group_.is_alone() ? hidden_.data()
                                 : group_.joint<float>(JointBuffer::kOutput, num_rows * width);
  const auto first = static_cast<size_t>(own_.begin);
  for (size_t i = 0; i < static_cast<size_t>(own_rows.size); ++i) {
    const size_t own = is_last ? static_cast<size_t>(wanted_[i]) : i;
    std::copy_n(x_.data() + (first + own) * width, width,
                all + (static_cast<size_t>(own_rows.begin) + i) * width);
  }
  WIDEEP_TRY(group_.meet(written_rows(all, width, own_rows),
                         where.named("the prediction layer's output")));
  if (!group_.is_alone()) std::copy_n(all, num_rows * width, hidden_.data());
  return {};
}

// ---- the likeliest tokens ----
//
// Where ranks share the head, each finds the maxima of its columns, and only these travel: the
// logits of a prediction are not needed.

// A rank alone, or the ranks of a group, which all have all rows.
Model::HeadShare Model::head_share(int num_rows) {
  HeadShare share{
      .rows = logit_rows_.data(), .num_rows = num_rows, .num_own = num_rows, .all_rows = num_rows};
  if (group_.is_alone()) return share;
  share.part = group_.rank();
  share.parts = group_.size();
  share.maxima = group_.joint<Likeliest>(JointBuffer::kLogits,
                                         static_cast<size_t>(share.parts) * share.all_rows);
  return share;
}

// Ranks with rows of their own. Each writes its rows behind those of the ranks before it; rows that
// it was expected to have and has not are zeros.
Model::HeadShare Model::gather_rows(int num_rows, std::span<const int32_t> rows_of_ranks) {
  const size_t hidden = config_.hidden_size;
  const int rank = heads_.ranks.rank(), ranks = heads_.ranks.size();
  const int max = std::max(1, *std::ranges::max_element(rows_of_ranks));
  const int size = lm_head_size(max, ranks, heads_.max_size);
  const auto rows_before = [&](int end) {
    return std::accumulate(rows_of_ranks.begin(), rows_of_ranks.begin() + end, 0);
  };
  const int first = rank / size * size;  // of the ranks that share with this one
  HeadShare share{.num_rows = rows_before(first + size) - rows_before(first),
                  .first_own = rows_before(rank) - rows_before(first),
                  .num_own = num_rows,
                  .part = rank - first,
                  .parts = size,
                  .first_row = rows_before(first),
                  .all_rows = rows_before(ranks)};
  float* rows = heads_.ranks.joint<float>(JointBuffer::kInput, share.all_rows * hidden);
  float* own = rows + static_cast<size_t>(rows_before(rank)) * hidden;
  const auto expected = static_cast<size_t>(rows_of_ranks[static_cast<size_t>(rank)]);
  WIDEEP_CHECK_LE(static_cast<size_t>(num_rows), expected);
  std::ranges::copy(logit_rows_, own);
  std::fill(own + static_cast<size_t>(num_rows) * hidden, own + expected * hidden, 0.0f);
  share.rows = rows + static_cast<size_t>(share.first_row) * hidden;
  share.maxima = heads_.ranks.joint<Likeliest>(JointBuffer::kLogits,
                                               static_cast<size_t>(size) * share.all_rows);
  return share;
}

// Only the columns of this rank's part have memory. They begin where they would in a whole first
// row, because that is where the product writes them.
void Model::find_maxima(const HeadShare& share) {
  const int hidden = config_.hidden_size;
  const kernels::PackedMatrix& lm_head = weights_.lm_head.packed;
  const ColumnRange columns = columns_of_part(config_.vocab_size, share.part, share.parts);
  const auto width = static_cast<size_t>(std::max(columns.size, 0));
  prediction_logits_.resize(static_cast<size_t>(columns.begin) + share.num_rows * width);
  if (width > 0) {
    const Rows rows =
        compute_.cast(lm_head.shape, float_rows(share.rows, hidden, share.num_rows, hidden), cast_);
    const Product product{&lm_head, prediction_logits_.data(), width,
                          kernels::panels_of_part(lm_head.shape, share.part, share.parts),
                          bias_of(weights_.head_bias)};
    compute_.matmul(rows, std::span(&product, 1));
  }
  maxima_.resize(static_cast<size_t>(share.num_rows));
  compute_.pool().parallel_for(share.num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Likeliest& found = maxima_[static_cast<size_t>(row)];
      found = {.logit = std::numeric_limits<float>::quiet_NaN()};
      if (width == 0) continue;
      const float* logits = prediction_logits_.data() + columns.begin + row * columns.size;
      const int at = compute_.kernels().argmax(logits, columns.size);
      found = {.logit = logits[at], .token = columns.begin + at};
    }
  });
  if (share.maxima == nullptr) return;
  std::ranges::copy(
      maxima_, share.maxima + static_cast<size_t>(share.part) * share.all_rows + share.first_row);
}

// Parts are in the order of columns, so of equal logits the smallest token is found first. NaN is
// ignored, as the kernel does.
void Model::choose_likeliest(const HeadShare& share, std::vector<int32_t>* tokens) const {
  tokens->resize(static_cast<size_t>(share.num_own));
  for (int row = 0; row < share.num_own; ++row) {
    const int at = share.first_own + row;
    Likeliest best = maxima_[static_cast<size_t>(at)];
    if (share.maxima != nullptr) best = share.maxima[share.first_row + at];
    for (int part = 1; part < share.parts; ++part) {
      const Likeliest& other =
          share.maxima[static_cast<size_t>(part) * share.all_rows + share.first_row + at];
      if (other.logit > best.logit || (std::isnan(best.logit) && !std::isnan(other.logit))) {
        best = other;
      }
    }
    (*tokens)[static_cast<size_t>(row)] = best.token;
  }
}

}  // namespace wideep::model
