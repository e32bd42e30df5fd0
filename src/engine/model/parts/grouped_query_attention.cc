// SPDX-License-Identifier: Apache-2.0
//
// Order: q, k and v in one product call → norms, clamps and rotation in place, and keys and values
// into the cache → tasks of attention over pages → output projection. Nothing attends before all of
// the batch is in the cache, hence the barrier of threads, and of ranks, in between.
//
// The families' options are ifs around calls of kernels. A class for each would repeat the order,
// in which they differ only in whether norms come before or after the rotation.
#include "model/parts/grouped_query_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/try.h"
#include "model/model_forms.h"
#include "model/parts/norms.h"

namespace wideep::model {

using Norm = GroupedQueryConfig::Norm;

// ---- weights ----

GroupedQueryAttention::GroupedQueryAttention(const ModelConfig& config, int layer)
    : config_(config),
      layer_(config.layers[static_cast<size_t>(layer)]),
      kind_(config.attention_of(layer)),
      options_(kind_.options),
      rope_(kind_.rope, options_.rotary_dim) {
  core_ = {.layer = layer,
           .num_heads = kind_.num_heads,
           .num_kv_heads = kind_.num_kv_heads,
           .key_dim = kind_.head_dim,
           .value_dim = kind_.value_dim,
           .scale = options_.scale,
           .q_stride = options_.output_gate ? 2 * kind_.head_dim : kind_.head_dim,
           .window = layer_.window,
           .chunk = layer_.chunk};
}

Result<std::unique_ptr<Mixer>> GroupedQueryAttention::load(const ModelConfig& config, int layer,
                                                           const weights::WeightLoader& loader) {
  std::unique_ptr<GroupedQueryAttention> attention(new GroupedQueryAttention(config, layer));
  const AttentionKind& kind = attention->kind_;
  const GroupedQueryConfig& options = kind.options;
  const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
  const int hidden = config.hidden_size, dim = kind.head_dim;
  const int q_width = kind.num_heads * attention->core_.q_stride;
  const int k_width = kind.num_kv_heads * dim, v_width = kind.num_kv_heads * kind.value_dim;
  const LayerForms forms = layer_forms(config, layer, loader);
  const weights::MatrixForm& form = forms.input;
  WIDEEP_TRY_ASSIGN(attention->q_, loader.matrix(prefix + "q_proj.weight", q_width, hidden, form));
  WIDEEP_TRY_ASSIGN(attention->k_, loader.matrix(prefix + "k_proj.weight", k_width, hidden, form));
  if (!options.value_is_key) {
    WIDEEP_TRY_ASSIGN(attention->v_,
                      loader.matrix(prefix + "v_proj.weight", v_width, hidden, form));
  }
  WIDEEP_TRY_ASSIGN(attention->o_, loader.matrix(prefix + "o_proj.weight", hidden,
                                                 kind.num_heads * kind.value_dim, forms.output));
  if (attention->has_own_gate()) {
    WIDEEP_TRY_ASSIGN(attention->g_,
                      loader.matrix(prefix + "g_proj.weight",
                                    kind.num_heads * attention->gate_size(), hidden, form));
  }
  const auto bias = [&](bool has, const char* name, int size) {
    return load_bias(has, loader, prefix + name, size);
  };
  WIDEEP_TRY_ASSIGN(attention->q_bias_, bias(options.qkv_bias, "q_proj.bias", q_width));
  WIDEEP_TRY_ASSIGN(attention->k_bias_, bias(options.qkv_bias, "k_proj.bias", k_width));
  WIDEEP_TRY_ASSIGN(attention->v_bias_,
                    bias(options.qkv_bias && !options.value_is_key, "v_proj.bias", v_width));
  WIDEEP_TRY_ASSIGN(attention->o_bias_, bias(options.output_bias, "o_proj.bias", hidden));
  WIDEEP_TRY_ASSIGN(attention->sinks_, bias(options.sinks, "sinks", kind.num_heads));
  attention->core_.sinks = bias_of(attention->sinks_);
  if (options.norm != Norm::kNone && options.norm_has_weight) {
    const bool each = options.norm == Norm::kHead;
    WIDEEP_TRY_ASSIGN(attention->q_norm_, load_norm(config, loader, prefix + "q_norm.weight",
                                                    each ? dim : kind.num_heads * dim));
    WIDEEP_TRY_ASSIGN(attention->k_norm_,
                      load_norm(config, loader, prefix + "k_norm.weight", each ? dim : k_width));
  }
  if (options.blocks.head_dim > 0) {
    WIDEEP_TRY_ASSIGN(attention->indexer_,
                      BlockIndexer::load(config, layer, loader, forms, prefix + "indexer."));
  }
  return std::unique_ptr<Mixer>(std::move(attention));
}

// ---- forward ----

void GroupedQueryAttention::prepare(const MixerCall& call) const {
  AttentionStep& step = call.scratch.step;
  const int kind = layer_.attention_kind;
  step.rotate(call.compute, call.batch, kind, rope_);
  for (int run = 0; run < static_cast<int>(step.runs.size()); ++run) {
    if (indexer_ && indexer_->chooses(step.runs[static_cast<size_t>(run)])) {
      step.add_token_tasks(call.compute, kind, run, heads_of(call.group));
    } else {
      step.add_tasks(call.compute, kind, run, heads_of(call.group));
    }
  }
}

HeadRange GroupedQueryAttention::computed_heads(const TensorGroup& group) const {
  if (options_.norm != Norm::kAllHeads) return heads_of(group);
  return part_of_heads(0, 1, kind_.num_heads, kind_.num_kv_heads);
}

bool GroupedQueryAttention::normalizes() const {
  return options_.norm != Norm::kNone && (layer_.rotates || !options_.norm_rotated_only);
}

void GroupedQueryAttention::normalize(const Compute& compute, const Heads& heads) const {
  const float* weight = heads.norm->empty() ? nullptr : heads.norm->data();
  const auto norm = [&](float* x, int n) {
    compute.kernels().rms_norm(x, weight, config_.rms_norm_eps, n, x);
  };
  if (options_.norm == Norm::kAllHeads) return norm(heads.first, heads.count * heads.stride);
  for (int head = 0; head < heads.count; ++head) {
    norm(heads.first + static_cast<size_t>(head) * heads.stride, kind_.head_dim);
  }
}

// Those of `count` heads.
void GroupedQueryAttention::normalize_values(const Compute& compute, float* values,
                                             int count) const {
  const int dim = kind_.value_dim;
  for (int head = 0; head < count; ++head) {
    float* value = values + static_cast<size_t>(head) * static_cast<size_t>(dim);
    compute.kernels().rms_norm(value, nullptr, config_.rms_norm_eps, dim, value);
  }
}

void GroupedQueryAttention::rotate(const Compute& compute, const float* cos_sin,
                                   const Heads& heads) const {
  for (int head = 0; head < heads.count; ++head) {
    rope_.rotate(compute.kernels(), cos_sin,
                 heads.first + static_cast<size_t>(head) * heads.stride);
  }
}

void GroupedQueryAttention::clamp(float* values, int count) const {
  for (int i = 0; i < count; ++i) values[i] = std::clamp(values[i], -options_.clip, options_.clip);
}

// Llama 4's layers without rotation: keeps attention sharp far from the trained context.
void GroupedQueryAttention::scale_by_position(const Compute& compute, int position,
                                              const Heads& heads) const {
  const float blocks =
      std::floor((static_cast<float>(position) + 1.0f) / options_.temperature_floor);
  const float scale = std::log(blocks + 1.0f) * options_.temperature + 1.0f;
  for (int head = 0; head < heads.count; ++head) {
    compute.kernels().scale_row(scale, kind_.head_dim,
                                heads.first + static_cast<size_t>(head) * heads.stride);
  }
}

// Normalises and rotates queries and keys in place, and writes keys and values into the cache,
// token by token.
void GroupedQueryAttention::write_cache(const MixerCall& call, float* q, float* k, float* v) const {
  const Compute& compute = call.compute;
  const KvLayout& kv = call.kv;
  const AttentionStep& step = call.scratch.step;
  const HeadRange computed = computed_heads(call.group), own = heads_of(call.group);
  const int dim = kind_.head_dim, value_dim = kind_.value_dim, q_stride = core_.q_stride;
  const size_t q_width = q_.packed.n(), k_width = k_.packed.n();
  const auto v_width = static_cast<size_t>(kind_.num_kv_heads * value_dim);
  for_each_token(compute, step, [&](int token, std::byte* page, int slot) {
    const Heads queries{q + token * q_width + static_cast<size_t>(computed.first) * q_stride,
                        computed.count, q_stride, &q_norm_};
    const Heads keys{k + token * k_width + static_cast<size_t>(computed.first_kv) * dim,
                     computed.num_kv, dim, &k_norm_};
    const float* key = k + token * k_width + static_cast<size_t>(own.first_kv) * dim;
    float* value = v + token * v_width + static_cast<size_t>(own.first_kv) * value_dim;
    if (options_.value_is_key) std::copy_n(key, own.num_kv * dim, value);
    if (options_.value_norm) normalize_values(compute, value, own.num_kv);
    if (options_.value_scale != 1.0f) {
      compute.kernels().scale_row(options_.value_scale, own.num_kv * value_dim, value);
    }
    const float* cos_sin = step.angles_of(layer_.attention_kind, token, rope_.dim());
    for (const Heads* heads : {&queries, &keys}) {
      if (normalizes() && !options_.norm_after_rotation) normalize(compute, *heads);
      if (options_.clip > 0) clamp(heads->first, heads->count * heads->stride);
      if (layer_.rotates) rotate(compute, cos_sin, *heads);
      if (normalizes() && options_.norm_after_rotation) normalize(compute, *heads);
    }
    if (options_.clip > 0) clamp(value, own.num_kv * value_dim);
    if (!layer_.rotates && options_.temperature > 0) {
      scale_by_position(compute, call.batch.positions[static_cast<size_t>(token)], queries);
    }
    for (int head = 0; head < own.num_kv; ++head) {
      const auto at = static_cast<size_t>(head);
      compute.kernels().store_key(kv.dtype, key + at * dim, dim, slot,
                                  kv.keys(page, core_.layer, head));
      compute.kernels().store_value(kv.dtype, value + at * value_dim, value_dim, slot,
                                    kv.values(page, core_.layer, head));
    }
  });
}

void GroupedQueryAttention::apply_gate(const Compute& compute, const float* gate,
                                       float* out) const {
  const int dim = kind_.value_dim;
  const bool each = gate_size() > 1;
  if (!options_.gate_softplus && each) {
    return compute.kernels().sigmoid_multiply(gate, out, dim, out);
  }
  const auto factor = [&](float x) {
    if (!options_.gate_softplus) return 1.0f / (1.0f + std::exp(-x));
    return x > 20.0f ? x : std::log1p(std::exp(x));
  };
  if (!each) return compute.kernels().scale_row(factor(*gate), dim, out);
  for (int i = 0; i < dim; ++i) out[i] *= factor(gate[i]);
}

// Multiplies the task's outputs by their gates.
void GroupedQueryAttention::gate(const Compute& compute, const TokenRun& run,
                                 const AttentionTask& task, const float* gates,
                                 float* heads) const {
  const auto dim = static_cast<size_t>(kind_.value_dim);
  const auto num_heads = static_cast<size_t>(kind_.num_heads);
  // Gates that lie behind the queries, or those of g_proj.
  const auto behind = has_own_gate() ? 0 : static_cast<size_t>(kind_.head_dim);
  const auto stride = static_cast<size_t>(has_own_gate() ? gate_size() : core_.q_stride);
  for (int t = 0; t < task.num_tokens; ++t) {
    const auto token = static_cast<size_t>(run.first_token + task.first_token + t);
    for (int i = 0; i < task.num_heads; ++i) {
      const size_t head = token * num_heads + static_cast<size_t>(task.first_head + i);
      apply_gate(compute, gates + head * stride + behind, heads + head * dim);
    }
  }
}

Result<const float*> GroupedQueryAttention::forward(const MixerCall& call, const float* h) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const int num_tokens = call.batch.num_tokens(), hidden = config_.hidden_size;
  const int dim = kind_.head_dim, value_dim = kind_.value_dim, q_stride = core_.q_stride;
  const HeadRange computed = computed_heads(call.group), own = heads_of(call.group);
  const size_t q_width = q_.packed.n(), k_width = k_.packed.n();
  const auto v_width = static_cast<size_t>(kind_.num_kv_heads * value_dim);
  const Rows rows =
      compute.cast(q_.packed.shape, float_rows(h, hidden, num_tokens, hidden), scratch.cast);
  float* q = scratch.query.get<float>(num_tokens * q_width);
  float* k = scratch.key.get<float>(num_tokens * k_width);
  float* v = scratch.value.get<float>(num_tokens * v_width);
  // Only this rank's heads are computed; in a group of one, all.
  std::array<Product, 4> products;
  size_t num_products = 0;
  products[num_products++] = {
      &q_.packed, q, q_width,
      panels_of_columns(computed.first * q_stride, computed.count * q_stride), bias_of(q_bias_)};
  products[num_products++] = {&k_.packed, k, k_width,
                              panels_of_columns(computed.first_kv * dim, computed.num_kv * dim),
                              bias_of(k_bias_)};
  if (!options_.value_is_key) {
    products[num_products++] = {&v_.packed, v, v_width,
                                panels_of_columns(own.first_kv * value_dim, own.num_kv * value_dim),
                                bias_of(v_bias_)};
  }
  const float* gates = options_.output_gate ? q : nullptr;
  if (has_own_gate()) {
    const auto width = static_cast<size_t>(g_.packed.n());
    float* const own_gates = scratch.gate.get<float>(static_cast<size_t>(num_tokens) * width);
    products[num_products++] = {&g_.packed, own_gates, width,
                                panels_of_columns(own.first * gate_size(), own.count * gate_size()),
                                nullptr};
    gates = own_gates;
  }
  // The cache is written before anything attends to it: a token attends to itself and to earlier
  // tokens of the same batch.
  compute.matmul(rows, std::span(products).first(num_products));
  write_cache(call, q, k, v);
  if (indexer_) indexer_->write_cache(call, h, rope_, own);
  WIDEEP_TRY(meet_in_cache(call, core_.layer));
  if (indexer_) indexer_->select(call, own);

  const AttentionStep& step = scratch.step;
  float* heads =
      call.group.joint<float>(JointBuffer::kHeads, static_cast<size_t>(num_tokens) * o_.packed.k());
  const std::vector<AttentionTask>& tasks = step.tasks(layer_.attention_kind);
  compute.pool().parallel_for(static_cast<int64_t>(tasks.size()), 1, [&](int64_t begin, int64_t) {
    const AttentionTask& task = tasks[static_cast<size_t>(begin)];
    const TokenRun& run = step.runs[task.run];
    const bool chooses = indexer_ && indexer_->chooses(run);
    core_.run(compute, call.kv, run, task,
              {.q = q, .out = heads, .blocks = chooses ? &scratch.blocks : nullptr});
    if (gates != nullptr) gate(compute, run, task, gates, heads);
  });
  return project(call, o_.packed, bias_of(o_bias_));
}

}  // namespace wideep::model
