// SPDX-License-Identifier: Apache-2.0
#include "model/qwen3_moe.h"

#include <fmt/format.h>

#include <cmath>

#include "base/try.h"
#include "model/model_forms.h"

namespace wideep::model {

GroupedQueryAttention::GroupedQueryAttention(const ModelConfig& config, int layer)
    : config_(config), rope_(config.rope, config.head_dim) {
  core_ = {.layer = layer,
           .num_heads = config.num_heads,
           .num_kv_heads = config.num_kv_heads,
           .key_dim = config.head_dim,
           .value_dim = config.head_dim,
           .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))};
}

Result<std::unique_ptr<Attention>> GroupedQueryAttention::load(
    const ModelConfig& config, int layer, const weights::WeightLoader& loader) {
  std::unique_ptr<GroupedQueryAttention> attention(new GroupedQueryAttention(config, layer));
  const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
  const int hidden = config.hidden_size, dim = config.head_dim;
  const int q_width = config.num_heads * dim, kv_width = config.num_kv_heads * dim;
  const LayerForms forms = layer_forms(config, layer, loader);
  const weights::MatrixForm& form = forms.input;
  WIDEEP_TRY_ASSIGN(attention->q_, loader.matrix(prefix + "q_proj.weight", q_width, hidden, form));
  WIDEEP_TRY_ASSIGN(attention->k_, loader.matrix(prefix + "k_proj.weight", kv_width, hidden, form));
  WIDEEP_TRY_ASSIGN(attention->v_, loader.matrix(prefix + "v_proj.weight", kv_width, hidden, form));
  WIDEEP_TRY_ASSIGN(attention->o_,
                    loader.matrix(prefix + "o_proj.weight", hidden, q_width, forms.output));
  WIDEEP_TRY_ASSIGN(attention->q_norm_, loader.floats(prefix + "q_norm.weight", {dim}));
  WIDEEP_TRY_ASSIGN(attention->k_norm_, loader.floats(prefix + "k_norm.weight", {dim}));
  return std::unique_ptr<Attention>(std::move(attention));
}

void GroupedQueryAttention::prepare(const AttentionCall& call) const {
  AttentionStep& step = call.scratch.step;
  step.start(call.compute, call.batch, rope_);
  for (size_t run = 0; run < step.runs.size(); ++run) {
    step.add_tasks(call.compute, static_cast<int>(run), heads_of(call.group));
  }
}

void GroupedQueryAttention::normalize_and_rotate(const Compute& compute, const float* norm,
                                                 const float* cos_sin, int num_heads,
                                                 float* heads) const {
  const int dim = config_.head_dim;
  for (int head = 0; head < num_heads; ++head) {
    float* x = heads + static_cast<size_t>(head) * dim;
    compute.kernels().rms_norm(x, norm, config_.rms_norm_eps, dim, x);
    rope_.rotate(compute.kernels(), cos_sin, x);
  }
}

// Normalises and rotates queries and keys in place, and writes keys and values into the cache,
// token by token.
void GroupedQueryAttention::write_cache(const AttentionCall& call, float* q, float* k,
                                        const float* v) const {
  const Compute& compute = call.compute;
  const KvLayout& kv = call.kv;
  const AttentionStep& step = call.scratch.step;
  const HeadRange heads = heads_of(call.group);
  const int dim = config_.head_dim;
  const size_t q_width = static_cast<size_t>(config_.num_heads) * dim;
  const size_t kv_width = static_cast<size_t>(config_.num_kv_heads) * dim;
  for_each_token(compute, step, [&](int token, std::byte* page, int slot) {
    const float* cos_sin = step.angles_of(token, dim);
    float* query = q + token * q_width + static_cast<size_t>(heads.first) * dim;
    float* key = k + token * kv_width + static_cast<size_t>(heads.first_kv) * dim;
    const float* value = v + token * kv_width + static_cast<size_t>(heads.first_kv) * dim;
    normalize_and_rotate(compute, q_norm_.data(), cos_sin, heads.count, query);
    normalize_and_rotate(compute, k_norm_.data(), cos_sin, heads.num_kv, key);
    for (int head = 0; head < heads.num_kv; ++head) {
      const size_t at = static_cast<size_t>(head) * dim;
      compute.kernels().store_key(kv.dtype, key + at, dim, slot, kv.keys(page, core_.layer, head));
      compute.kernels().store_value(kv.dtype, value + at, dim, slot,
                                    kv.values(page, core_.layer, head));
    }
  });
}

Result<const float*> GroupedQueryAttention::forward(const AttentionCall& call,
                                                    const float* h) const {
  const Compute& compute = call.compute;
  AttentionScratch& scratch = call.scratch;
  const int num_tokens = call.batch.num_tokens(), hidden = config_.hidden_size;
  const int dim = config_.head_dim;
  const HeadRange own = heads_of(call.group);
  const size_t q_width = q_.packed.n(), kv_width = k_.packed.n();
  const Rows rows =
      compute.cast(q_.packed.shape, float_rows(h, hidden, num_tokens, hidden), scratch.cast);
  float* q = scratch.query.get<float>(num_tokens * q_width);
  float* k = scratch.key.get<float>(num_tokens * kv_width);
  float* v = scratch.value.get<float>(num_tokens * kv_width);
  // Only this rank's heads are computed; in a group of one, all.
  const Panels queries = panels_of_columns(own.first * dim, own.count * dim);
  const Panels keys = panels_of_columns(own.first_kv * dim, own.num_kv * dim);
  const Product products[] = {{&q_.packed, q, q_width, queries},
                              {&k_.packed, k, kv_width, keys},
                              {&v_.packed, v, kv_width, keys}};
  // The cache is written before anything attends to it: a token attends to itself and to earlier
  // tokens of the same batch.
  compute.matmul(rows, products);
  write_cache(call, q, k, v);
  WIDEEP_TRY(meet_in_cache(call, core_.layer));

  const AttentionStep& step = scratch.step;
  float* heads = call.group.joint<float>(JointBuffer::kHeads, num_tokens * q_width);
  compute.pool().parallel_for(static_cast<int64_t>(step.tasks.size()), 1,
                              [&](int64_t begin, int64_t) {
                                const AttentionTask& task = step.tasks[begin];
                                core_.run(compute, call.kv, step.runs[task.run], task, q, heads);
                              });
  return project(call, o_.packed);
}

}  // namespace wideep::model
