// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA Nemotron-H and Nemotron 3: layers of one part each (Mamba-2, attention without positions,
// experts or an MLP), MLPs without a gate, and in larger models experts in a latent space.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

void read_layers(const JsonObject& root, ModelConfig* config) {
  const std::string letters = read_layer_letters(root);
  if (letters.size() != config->layers.size()) {
    root.complain("num_hidden_layers",
                  fmt::format("expected {}, as many as layers_block_type or {} has, found {}",
                              letters.size(), kLayerPattern, config->layers.size()));
    return;
  }
  for (size_t i = 0; i < letters.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    layer.rotates = false;
    layer.is_moe = letters[i] == 'E';
    layer.has_mlp = layer.is_moe || letters[i] == '-';
    layer.mixer = LayerConfig::Mixer::kNone;
    if (letters[i] == 'M') layer.mixer = LayerConfig::Mixer::kMamba2;
    if (letters[i] == '*') layer.mixer = LayerConfig::Mixer::kAttention;
    if (layer.has_mlp || layer.mixer != LayerConfig::Mixer::kNone) continue;
    root.complain(root.has(kLayerPattern) ? kLayerPattern : "layers_block_type",
                  fmt::format("layer {}: expected linear_attention (M), full_attention (*), moe "
                              "(E) or mlp (-)",
                              i));
  }
}

void read_mamba(const JsonObject& root, Mamba2Config* mamba) {
  read_mamba2(root,
              {.heads = "mamba_num_heads",
               .groups = "n_groups",
               .state_dim = "ssm_state_size",
               .convolution_width = "conv_kernel",
               .convolution_bias = "use_conv_bias",
               .projection_bias = "use_bias",
               .num_groups = 8,
               .num_states = 128},
              mamba);
  mamba->head_dim =
      static_cast<int>(root.integer_or("mamba_head_dim", 64, {.min = 1, .max = kMaxHeadDim}));
  if (!mamba->projection_bias) require_flag(root, "mamba_proj_bias", false);
  require_silu(root, "mamba_hidden_act");
  for (const char* other : {"mamba_n_groups", "mamba_d_conv", "mamba_dt_min", "mamba_conv_bias"}) {
    if (root.has(other)) root.complain(other, "expected the family's own name of the key");
  }
  // Steps have a least length and no greatest one: transformers does not read time_step_limit.
  Mamba2Config limits;
  read_step_limits(root, &limits);
  mamba->min_step =
      static_cast<float>(root.number_or("time_step_min", 0.001, {.min = 0.0, .max = 1e3}));
  const bool is_same = limits.min_step == 0.0f || limits.min_step == mamba->min_step;
  if (!readable(root) || (is_same && std::isinf(limits.max_step))) return;
  root.complain("time_step_limit",
                "expected 0, or time_step_min, and Infinity; wideep computes no "
                "other limits in this family");
}

void read_mlps(const JsonObject& root, ModelConfig* config) {
  const auto width = [&](std::string_view key, int by_default) {
    return static_cast<int>(root.integer_or(key, by_default, {.min = 1, .max = kMaxIntermediate}));
  };
  require_word(root, "mlp_hidden_act", "relu2");
  require_flag(root, "mlp_bias", false);
  config->activation.kind = config->dense_activation.kind = kernels::Activation::Kind::kSquaredRelu;
  config->dense_intermediate_size = width("intermediate_size", 21504);
  config->moe_intermediate_size = width("moe_intermediate_size", 7688);
  config->shared_intermediate_size = width("moe_shared_expert_intermediate_size", 7688);
  config->moe_latent_size =
      static_cast<int>(root.integer_or("moe_latent_size", 0, {.min = 1, .max = kMaxHidden}));
  root.integer_or("n_shared_experts", 1, {.min = 1, .max = 1});
  DeepseekDefaults defaults = {.experts = 8, .top_k = 2, .groups = 1, .top_k_groups = 1};
  defaults.normalize = true;
  defaults.scaling_factor = 1.0;
  read_deepseek_routing(root, defaults, config);
  if (config->has_experts()) return;
  // As in read_sparse_steps(). What files say of experts that there are none of has no effect.
  config->routing = {.num_experts = 1, .top_k = 1};
  config->moe_intermediate_size = config->dense_intermediate_size;
  config->shared_intermediate_size = config->moe_latent_size = 0;
}

// The layer that predicts further tokens is two of the files': attention, then experts. vLLM and
// SGLang agree on it; llama.cpp has a norm that takes away the mean at its end.
void read_prediction(const JsonObject& root, ModelConfig* config) {
  config->num_mtp_layers = static_cast<int>(
      root.integer_or("num_nextn_predict_layers", 0, {.min = 0, .max = kMaxLayers}));
  config->left_out = {"mtp."};
  config->prediction_layer.rotates = false;
  const bool has_words = root.has("mtp_layers_block_type");
  const nlohmann::json words = has_words ? root.raw().at("mtp_layers_block_type") : nullptr;
  const bool is_known = words.is_null() || words == nlohmann::json{"full_attention", "moe"} ||
                        words == nlohmann::json{"attention", "moe"};
  config->names_mtp_layers = root.string_or("mtp_hybrid_override_pattern", "*E") == "*E" &&
                             is_known && config->num_mtp_layers == 1 && config->has_experts();
  const auto rename = [&](const std::string& canonical, const std::string& published) {
    config->tensor_names.rename(fmt::format("model.layers.{}.{}", config->num_layers, canonical),
                                "mtp.layers." + published);
  };
  for (const std::string same : {"enorm", "hnorm", "eh_proj"}) rename(same, "0." + same);
  rename("input_layernorm", "0.norm");
  rename("self_attn", "0.mixer");
  rename("post_attention_layernorm", "1.norm");
  rename("mlp", "1.mixer");
  rename("shared_head.norm", "1.final_layernorm");
}

}  // namespace

void read_nemotron_h(const JsonObject& root, ModelConfig* config) {
  read_grouped_query(root, config, {.kv_heads = 8, .head_dim = 128});
  require_flag(root, "attention_bias", false);
  root.integer_or("sliding_window", 0, {.min = 0, .max = 0});
  constexpr formats::NumberRange kEpsilons = {.min = 1e-12, .max = 0.1};
  const double epsilon = root.number_or("layer_norm_epsilon", 1e-5, kEpsilons);
  for (const char* other : {"rms_norm_eps", "norm_eps"}) {
    if (root.number_or(other, epsilon, kEpsilons) == epsilon) continue;
    root.complain(other, fmt::format("expected layer_norm_epsilon, {}", epsilon));
  }
  config->rms_norm_eps = static_cast<float>(epsilon);
  read_layers(root, config);
  read_mamba(root, &config->mamba2);
  read_mlps(root, config);
  // Of programs, and of rotations that there are none of.
  for (const char* key : {"chunk_size", "expand"}) root.has(key);
  for (const char* key : {"partial_rotary_factor", "rope_theta"}) root.has(key);
  read_prediction(root, config);
  weights::TensorNames& names = config->tensor_names;
  names.prefix("model.", "backbone.").rename("model.embed_tokens", "model.embeddings");
  names.rename("model.norm", "model.norm_f");
  for (const std::string matrix : {"up_proj", "down_proj"}) {
    names.rename("mlp.experts.*." + matrix, "mixer.experts." + matrix);
  }
  names.rename("input_layernorm", "norm").rename("post_attention_layernorm", "norm");
  for (const char* part : {"self_attn", "mamba", "mlp"}) names.rename(part, "mixer");
}

}  // namespace wideep::model
