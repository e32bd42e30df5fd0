// SPDX-License-Identifier: Apache-2.0
#include "model/deepseek_v3.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/try.h"

namespace wideep::model {

using weights::WeightLoader;

LatentAttention::LatentAttention(const ModelConfig& config, int layer)
    : config_(config), rope_(config.rope, config.qk_rope_head_dim) {
  const double query_dim = config.qk_nope_head_dim + config.qk_rope_head_dim;
  core_ = {.layer = layer,
           .num_heads = config.num_heads,
           .num_kv_heads = 1,
           .key_dim = config.kv_lora_rank + config.qk_rope_head_dim,
           .value_dim = config.kv_lora_rank,
           .scale = static_cast<float>(config.rope.softmax_scale_multiplier / std::sqrt(query_dim)),
           .value_in_key = true};
}

// ---- weights ----

Result<std::unique_ptr<Attention>> LatentAttention::load(const ModelConfig& config, int layer,
                                                         const WeightLoader& loader) {
  std::unique_ptr<LatentAttention> attention(new LatentAttention(config, layer));
  const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
  WIDEEP_TRY(attention->load_query(loader, prefix));
  WIDEEP_TRY(attention->load_latent(loader, prefix));
  WIDEEP_TRY_ASSIGN(attention->o_, loader.matrix(prefix + "o_proj.weight", config.hidden_size,
                                                 config.num_heads * config.v_head_dim));
  return std::unique_ptr<Attention>(std::move(attention));
}

Status LatentAttention::load_query(const WeightLoader& loader, const std::string& prefix) {
  const int width = config_.num_heads * (config_.qk_nope_head_dim + config_.qk_rope_head_dim);
  if (config_.q_lora_rank == 0) {
    WIDEEP_TRY_ASSIGN(q_b_, loader.matrix(prefix + "q_proj.weight", width, config_.hidden_size));
    return {};
  }
  WIDEEP_TRY_ASSIGN(
      q_a_, loader.matrix(prefix + "q_a_proj.weight", config_.q_lora_rank, config_.hidden_size));
  WIDEEP_TRY_ASSIGN(q_a_norm_,
                    loader.floats(prefix + "q_a_layernorm.weight", {config_.q_lora_rank}));
  WIDEEP_TRY_ASSIGN(q_b_, loader.matrix(prefix + "q_b_proj.weight", width, config_.q_lora_rank));
  return {};
}

Status LatentAttention::load_latent(const WeightLoader& loader, const std::string& prefix) {
  const int rank = config_.kv_lora_rank, nope = config_.qk_nope_head_dim, v = config_.v_head_dim;
  WIDEEP_TRY_ASSIGN(kv_a_, loader.matrix(prefix + "kv_a_proj_with_mqa.weight",
                                         rank + config_.qk_rope_head_dim, config_.hidden_size));
  WIDEEP_TRY_ASSIGN(kv_a_norm_, loader.floats(prefix + "kv_a_layernorm.weight", {rank}));
  WIDEEP_TRY_ASSIGN(
      const std::vector<float> kv_b,
      loader.floats(prefix + "kv_b_proj.weight", {int64_t{config_.num_heads} * (nope + v), rank}));
  // Small beside the rest, and used as two matrices that a quantised one would not be the parts of.
  const kernels::WeightFormat format = loader.format() == kernels::WeightFormat::kF32
                                           ? kernels::WeightFormat::kF32
                                           : kernels::WeightFormat::kBf16;
  std::vector<float> transposed(static_cast<size_t>(rank) * nope);
  for (int head = 0; head < config_.num_heads; ++head) {
    const float* keys =
        kv_b.data() + static_cast<size_t>(head) * (nope + v) * rank;  // [nope, rank]
    for (int i = 0; i < nope; ++i) {
      for (int j = 0; j < rank; ++j) transposed[j * nope + i] = keys[i * rank + j];
    }
    to_latent_.push_back(WeightLoader::pack_rows(format, transposed.data(), rank, nope));
    from_latent_.push_back(
        WeightLoader::pack_rows(format, keys + static_cast<size_t>(nope) * rank, v, rank));
  }
  return {};
}

// ---- forward ----

const float* LatentAttention::forward(const Compute& compute, const Batch& batch,
                                      const KvLayout& kv, const float* h,
                                      AttentionScratch& scratch) const {
  const int num_tokens = batch.num_tokens();
  if (num_tokens == 0) return h;  // an idle rank: no rows, and scratch memory that may be null
  const int hidden = config_.hidden_size;
  const Rows rows =
      compute.cast(kv_a_.packed.shape, float_rows(h, hidden, num_tokens, hidden), scratch.cast);
  write_cache(compute, batch, kv, rows, scratch);
  const float* q = latent_queries(compute, batch, queries(compute, rows, scratch), scratch);
  float* latent = scratch.latent_out.get<float>(static_cast<size_t>(num_tokens) * core_.num_heads *
                                                core_.value_dim);
  core_.forward(compute, batch, kv, q, latent);
  const float* heads = leave_latent(compute, num_tokens, latent, scratch);

  const int width = config_.num_heads * config_.v_head_dim;
  float* out = scratch.out.get<float>(static_cast<size_t>(num_tokens) * hidden);
  const SourceRows head_rows = float_rows(heads, width, num_tokens, width);
  compute.matmul(compute.cast(o_.packed.shape, head_rows, scratch.cast), o_.packed, out, hidden);
  return out;
}

// [num_tokens, num_heads × (nope + rope)], before rotation.
const float* LatentAttention::queries(const Compute& compute, const Rows& h,
                                      AttentionScratch& scratch) const {
  const size_t width = q_b_.packed.n();
  float* q = scratch.query.get<float>(h.num_rows * width);
  if (config_.q_lora_rank == 0) {
    compute.matmul(h, q_b_.packed, q, width);
    return q;
  }
  const int rank = config_.q_lora_rank;
  float* low = scratch.query_low.get<float>(static_cast<size_t>(h.num_rows) * rank);
  compute.matmul(h, q_a_.packed, low, rank);
  compute.rms_norm(low, rank, q_a_norm_.data(), config_.latent_norm_eps, h.num_rows, rank, low,
                   rank);
  const SourceRows low_rows = float_rows(low, rank, h.num_rows, rank);
  compute.matmul(compute.cast(q_b_.packed.shape, low_rows, scratch.low_cast), q_b_.packed, q,
                 width);
  return q;
}

// The cached row of a position: its normalised latent, then its rotated key.
void LatentAttention::write_cache(const Compute& compute, const Batch& batch, const KvLayout& kv,
                                  const Rows& h, AttentionScratch& scratch) const {
  const int rank = config_.kv_lora_rank;
  const size_t width = kv.key_row;
  float* rows = scratch.kv_row.get<float>(h.num_rows * width);
  compute.matmul(h, kv_a_.packed, rows, width);
  compute.rms_norm(rows, width, kv_a_norm_.data(), config_.latent_norm_eps, h.num_rows, rank, rows,
                   width);
  float* angles = scratch.angles.get<float>(static_cast<size_t>(h.num_rows) * rope_.dim());
  for (int token = 0; token < h.num_rows; ++token) {
    float* cos_sin = angles + static_cast<size_t>(token) * rope_.dim();
    rope_.angles(batch.positions[token], cos_sin);
    rope_.rotate(cos_sin, rows + token * width + rank);
    store_row(compute, kv.dtype, rows + token * width, static_cast<int>(width),
              kv.key(*batch.pages[token], core_.layer, batch.positions[token]));
  }
}

// [num_tokens, num_heads × (kv_lora_rank + rope)]: each head's query carried into the latent space,
// beside its rotated part. Uses the angles that write_cache computed.
const float* LatentAttention::latent_queries(const Compute& compute, const Batch& batch,
                                             const float* q, AttentionScratch& scratch) const {
  const int num_tokens = batch.num_tokens();
  const int nope = config_.qk_nope_head_dim, rope = config_.qk_rope_head_dim;
  const int rank = config_.kv_lora_rank;
  const size_t width = q_b_.packed.n(), out_width = size_t(core_.num_heads) * core_.key_dim;
  float* out = scratch.latent_query.get<float>(num_tokens * out_width);
  const float* angles = scratch.angles.get<float>(0);
  compute.pool().parallel_for(core_.num_heads, 1, [&](int64_t head, int64_t) {
    thread_local Scratch head_cast;
    const float* q_head = q + head * (nope + rope);
    float* out_head = out + head * core_.key_dim;
    const Rows rows = cast_rows(compute.kernels(), to_latent_[head].packed.shape,
                                float_rows(q_head, width, num_tokens, nope), head_cast);
    compute.kernels().matmul(matmul_args(rows, to_latent_[head].packed, out_head, out_width));
    for (int token = 0; token < num_tokens; ++token) {
      float* rotated = out_head + token * out_width + rank;
      std::memcpy(rotated, q_head + token * width + nope, rope * sizeof(float));
      rope_.rotate(angles + static_cast<size_t>(token) * rope_.dim(), rotated);
    }
  });
  return out;
}

// [num_tokens, num_heads × v] from [num_tokens, num_heads × kv_lora_rank].
const float* LatentAttention::leave_latent(const Compute& compute, int num_tokens,
                                           const float* latent, AttentionScratch& scratch) const {
  const int rank = config_.kv_lora_rank, v = config_.v_head_dim;
  const size_t width = size_t(core_.num_heads) * rank, out_width = size_t(core_.num_heads) * v;
  float* out = scratch.heads.get<float>(num_tokens * out_width);
  compute.pool().parallel_for(core_.num_heads, 1, [&](int64_t head, int64_t) {
    thread_local Scratch head_cast;
    const Rows rows =
        cast_rows(compute.kernels(), from_latent_[head].packed.shape,
                  float_rows(latent + head * rank, width, num_tokens, rank), head_cast);
    compute.kernels().matmul(
        matmul_args(rows, from_latent_[head].packed, out + head * v, out_width));
  });
  return out;
}

}  // namespace wideep::model
