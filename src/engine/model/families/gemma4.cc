// SPDX-License-Identifier: Apache-2.0
//
// Gemma 4 (text): layers with windows and, among six, one of full attention, whose heads are larger
// and may have keys for values; norms around all parts; a dense MLP beside the experts, or alone.
#include <fmt/format.h>

#include <cmath>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// transformers makes the last layer one of full attention, whatever layer_types says.
std::vector<bool> read_full_layers(const JsonObject& root, ModelConfig* config) {
  const int window =
      static_cast<int>(root.integer_or("sliding_window", 512, {.min = 1, .max = kMaxPositions}));
  std::vector<bool> is_full = read_layer_types(root, *config, "full_attention", "sliding_attention",
                                               [](int layer) { return (layer + 1) % 6 == 0; });
  is_full.back() = true;
  for (size_t layer = 0; layer < is_full.size(); ++layer) {
    if (!is_full[layer]) config->layers[layer].window = window;
  }
  return is_full;
}

void read_attention(const JsonObject& root, ModelConfig* config) {
  read_grouped_query(root, config, {.kv_heads = 4, .head_dim = 256});
  read_attention_bias(root, false, true, config);
  GroupedQueryConfig& attention = config->grouped_query;
  attention.norm = GroupedQueryConfig::Norm::kHead;
  attention.value_norm = true;
  attention.scale = 1.0f;
  const std::vector<bool> is_full = read_full_layers(root, config);
  AttentionKind sliding = config->attention_kind(0);
  read_kind_rope(root, "sliding_attention", {.theta = 1e4}, config, &sliding);
  config->rope = sliding.rope;

  AttentionKind& full = *add_attention_kind(is_full, config);
  full.options.value_is_key = root.boolean_or("attention_k_eq_v", false);
  const auto dim =
      static_cast<int>(root.integer_or("global_head_dim", 512, {.min = 1, .max = kMaxHeadDim}));
  const auto kv_heads = static_cast<int>(root.integer_or(
      "num_global_key_value_heads", full.num_kv_heads, {.min = 1, .max = kMaxHeads}));
  if (!read_layer_overrides(root, is_full, *config, &full)) {
    full.head_dim = full.value_dim = dim;
    if (full.options.value_is_key) full.num_kv_heads = kv_heads;
  }
  check_kind(root, full);
  read_kind_rope(root, "full_attention", {.theta = 1e6, .share = 0.25}, config, &full);
}

void refuse_parts(const JsonObject& root) {
  const auto refuse = [&](const char* key, int64_t by_default, const char* what) {
    const int64_t found = root.integer_or(key, by_default);
    if (found == 0) return;
    root.complain(key, fmt::format("expected 0, found {}; wideep computes no {}", found, what));
  };
  refuse("num_kv_shared_layers", 0, "layers that share keys and values with others");
  refuse("hidden_size_per_layer_input", 256, "embeddings of each layer");
  // Neither has an effect without those.
  root.has("use_double_wide_mlp");
  root.has("vocab_size_per_layer_input");
  constexpr std::string_view kBoth = "use_bidirectional_attention";  // "vision": only in images
  if (const std::string found = root.string_or(kBoth, "vision"); found != "vision") {
    root.complain(kBoth, fmt::format("expected vision or null, found {}; wideep computes no text "
                                     "that attends to what follows",
                                     base::printable(found)));
  }
}

void read_gemma4_experts(const JsonObject& root, ModelConfig* config) {
  if (!root.boolean_or("enable_moe_block", false)) {
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) root.has(key);
    return read_dense_mlps(root, config);
  }
  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  config->dense_beside_experts = true;
  read_experts(root, {.top_k = "top_k_experts"}, config);
  RoutingConfig& routing = config->routing;
  routing.method = RoutingMethod::kRenormalize;
  routing.own_norm = routing.expert_scale = true;
}

void name_tensors(weights::TensorNames* names) {
  names->prefix("model.", "model.language_model.")
      .rename("mixer_output_norm", "post_attention_layernorm")
      .rename("post_attention_layernorm", "pre_feedforward_layernorm")
      .rename("mlp_output_norm", "post_feedforward_layernorm")
      .rename("mlp.dense_output_norm", "post_feedforward_layernorm_1")
      .rename("mlp.experts_norm", "pre_feedforward_layernorm_2")
      .rename("mlp.experts_output_norm", "post_feedforward_layernorm_2")
      .rename("mlp.gate.norm.weight", "router.scale")
      .rename("mlp.gate.expert_scale", "router.per_expert_scale")
      .rename("mlp.gate", "router.proj")
      .rename("mlp.experts", "experts")
      .fuse_experts("experts.gate_up_proj", "experts.down_proj");
}

}  // namespace

void read_gemma4(const JsonObject& root, ModelConfig* config) {
  require_word(root, "hidden_activation", "gelu_pytorch_tanh");
  config->activation.kind = config->dense_activation.kind = kernels::Activation::Kind::kGeluTanh;
  read_attention(root, config);
  refuse_parts(root);
  config->embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config->hidden_size)));
  if (root.has("final_logit_softcapping")) {
    config->logits_cap = read_scale(root, "final_logit_softcapping", 1.0);
  }
  config->norms_after = config->layer_scalar = true;
  read_gemma4_experts(root, config);
  config->left_out = {"model.vision_tower.", "model.embed_vision.", "model.audio_tower.",
                      "model.embed_audio."};
  name_tensors(&config->tensor_names);
}

}  // namespace wideep::model
