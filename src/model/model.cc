// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include <cstring>

#include "base/trace.h"
#include "base/try.h"

namespace wideep::model {

// The forward pass of DeepSeek-V3 and Qwen3-MoE alike:
//
//   x = embedding(ids)
//   per layer:  x += attention(rms_norm(x));  x += mlp_or_moe(rms_norm(x))
//   logits = lm_head(rms_norm(x))
Status Model::forward(const Batch& batch, const KvLayout& kv, int64_t iteration,
                      std::vector<float>* logits) {
  embed(batch);
  weights_.layers[0].attention->prepare(compute_, batch, attention_scratch_);
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    WIDEEP_TRY(forward_layer(batch, kv, layer, iteration));
  }
  head(batch, logits);
  return {};
}

void Model::embed(const Batch& batch) {
  const size_t hidden = config_.hidden_size;
  x_.assign(batch.num_tokens() * hidden, 0.0f);
  h_.resize(x_.size());
  const size_t row_bytes = hidden * dtype_bytes(weights_.dtype);
  for_each_row(batch.num_tokens(), [&](int64_t token) {
    const size_t id = batch.ids[static_cast<size_t>(token)];
    compute_.kernels().add_scaled(weights_.dtype, weights_.embedding.data() + id * row_bytes, 1.0f,
                                  config_.hidden_size, x_.data() + token * hidden);
  });
}

Status Model::forward_layer(const Batch& batch, const KvLayout& kv, int index, int64_t iteration) {
  const Layer& layer = weights_.layers[index];
  const int num_tokens = batch.num_tokens(), hidden = config_.hidden_size;
  const auto normalize = [&](const std::vector<float>& norm) {
    compute_.rms_norm(x_.data(), hidden, norm.data(), config_.rms_norm_eps, num_tokens, hidden,
                      h_.data(), hidden);
  };
  const auto add = [&](const float* y) {
    for_each_row(num_tokens, [&](int64_t row) {
      compute_.kernels().add_scaled(Dtype::kF32, y + row * hidden, 1.0f, hidden,
                                    x_.data() + row * hidden);
    });
  };

  {
    const base::TraceSpan span(base::Span::kAttention, index);
    normalize(layer.attention_norm);
    add(layer.attention->forward(compute_, batch, kv, h_.data(), attention_scratch_));
  }

  normalize(layer.mlp_norm);
  if (layer.moe != nullptr) {
    MoeCall call{.layer = index,
                 .iteration = iteration,
                 .num_tokens = num_tokens,
                 .tokens_of_ranks = batch.tokens_of_ranks,
                 .h = h_.data(),
                 .x = x_.data()};
    // Nobody reads what the last layer makes of the other tokens.
    if (index + 1 == config_.num_layers) call.wanted = batch.logit_rows;
    return moe_.forward(compute_, *layer.moe, call);
  }
  const base::TraceSpan span(base::Span::kMlp, index);
  mlp_out_.resize(x_.size());
  mlp_runner_.run(compute_, layer.mlp.view(), float_rows(h_.data(), hidden, num_tokens, hidden),
                  mlp_out_.data(), hidden);
  add(mlp_out_.data());
  return {};
}

// Only the rows whose logits are wanted.
void Model::head(const Batch& batch, std::vector<float>* logits) {
  const base::TraceSpan span(base::Span::kHead);
  const int hidden = config_.hidden_size;
  const int num_rows = static_cast<int>(batch.logit_rows.size());
  for (int i = 0; i < num_rows; ++i) {
    const float* row = x_.data() + static_cast<size_t>(batch.logit_rows[i]) * hidden;
    compute_.kernels().rms_norm(row, weights_.final_norm.data(), config_.rms_norm_eps, hidden,
                                h_.data() + static_cast<size_t>(i) * hidden);
  }
  logits->resize(static_cast<size_t>(num_rows) * config_.vocab_size);
  const kernels::PackedMatrix& lm_head = weights_.lm_head.packed;
  const Rows rows =
      compute_.cast(lm_head.shape, float_rows(h_.data(), hidden, num_rows, hidden), cast_);
  compute_.matmul(rows, lm_head, logits->data(), config_.vocab_size);
}

}  // namespace wideep::model
