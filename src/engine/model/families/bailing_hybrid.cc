// SPDX-License-Identifier: Apache-2.0
//
// Ling-3.0: Kimi Delta Attention whose decays have a bound, and gated latent attention in the last
// layer of each group; DeepSeek-V3's experts.
#include <fmt/format.h>

#include <algorithm>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// transformers writes linear_head_dim and the like beside other meanings of the published keys:
// its head_dim is then that of the rotation.
void read_delta(const JsonObject& root, ModelConfig* config) {
  const auto size = [&](std::string_view own, std::string_view key, int by_default,
                        formats::IntegerRange range) {
    return static_cast<int>(root.integer_or(own, root.integer_or(key, by_default, range), range));
  };
  KimiDeltaConfig& net = config->kimi_delta;
  net.head_dim = size("linear_head_dim", "head_dim", 128, kKimiHeadDims);
  net.num_heads = static_cast<int>(
      root.integer_or("linear_num_heads", config->num_heads, {.min = 1, .max = kMaxHeads}));
  net.convolution_width =
      size("linear_conv_kernel_dim", "short_conv_kernel_size", 4, kConvolutionWidths);
  const double bound = root.number_or("kda_lower_bound", -5.0, {.min = -1e6, .max = -1e-6});
  if (root.boolean_or("kda_safe_gate", true)) net.decay_bound = static_cast<float>(bound);
  require_flag(root, "no_kda_lora", true);
}

void read_mixers(const JsonObject& root, ModelConfig* config) {
  const int64_t group = root.integer_or("layer_group_size", 6, {.min = 1, .max = kMaxLayers});
  if (!readable(root)) return;
  // Which mixer layers after the last whole group have, programs do not agree on.
  if (!root.has("layer_types") && config->num_layers % group != 0) {
    root.complain("layer_group_size",
                  fmt::format("expected a divisor of num_hidden_layers {}, or layer_types, found "
                              "{}",
                              config->num_layers, group));
  }
  const std::vector<bool> is_linear =
      read_layer_types(root, *config, "linear_attention", "full_attention",
                       [&](int layer) { return (layer + 1) % group != 0; });
  for (size_t i = 0; i < is_linear.size(); ++i) {
    if (is_linear[i]) config->layers[i].mixer = LayerConfig::Mixer::kKimiDelta;
  }
}

// Limits of the experts' activation: none, or 0 for each layer.
void refuse_limits(const JsonObject& root, std::string_view key) {
  if (!root.has(key)) return;
  const nlohmann::json& limits = root.raw().at(std::string(key));
  const bool none =
      limits.is_array() && std::all_of(limits.begin(), limits.end(), [](const auto& x) {
        return x.is_null() || (x.is_number() && x.template get<double>() == 0);
      });
  if (!none) root.complain(key, "expected 0 for every layer; wideep computes no limits here");
}

void name_tensors(weights::TensorNames* names) {
  names->rename("self_attn.o_proj", "attention.dense")
      .rename("self_attn", "attention")
      .rename("model.embed_tokens", "model.word_embeddings")
      .rename("mlp.gate.e_score_correction_bias", "mlp.gate.expert_bias")
      .rename("shared_head.norm", "final_layernorm");
}

}  // namespace

void read_bailing_hybrid(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_latent_sizes(root, 1, config);
  require_word(root, "gated_attention_proj_granularity_type", "head_wise");
  config->latent_gate = true;
  config->rope = read_rope(root, *config, 6e6);
  config->rope.interleaved = true;
  require_flag(root, "rope_interleave", true);
  read_delta(root, config);
  read_mixers(root, config);
  read_kimi_experts(root,
                    {.dense_layers = 2,
                     .shared_experts = 1,
                     .mtp_layers = 1,
                     .experts = 512,
                     .top_k = 8,
                     .groups = 8,
                     .top_k_groups = 4,
                     .scaling_factor = 2.5},
                    config);
  expect_equal(root, "moe_shared_expert_intermediate_size",
               "moe_intermediate_size · num_shared_experts", config->shared_intermediate_size);
  config->names_mtp_layers = true;
  expect_equal(root, "rotary_dim", "qk_rope_head_dim", config->qk_rope_head_dim);
  for (const char* key : {"expert_swiglu_limit_list", "share_expert_swiglu_limit_list"}) {
    refuse_limits(root, key);
  }
  for (const char* word : {"score_function", "scoring_func"}) require_word(root, word, "sigmoid");
  root.has("mtp_loss_scaling_factor");  // of training
  name_tensors(&config->tensor_names);
}

}  // namespace wideep::model
