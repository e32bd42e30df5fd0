// SPDX-License-Identifier: Apache-2.0
//
// StepFun Step-3.7-Flash (text): layers with windows have a number of heads and a rotation of their
// own; a gate for each head; limits of the activations by layer.
//
// Keys are those of the published file, where lists have a value for each layer and for each layer
// that predicts further tokens, or those that transformers saves.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// Of layers with windows; per_layer_config repeats it.
void read_sliding_heads(const JsonObject& root, const std::vector<bool>& slides,
                        const ModelConfig& config, AttentionKind* sliding) {
  constexpr std::string_view kOther = "attention_other_setting";
  constexpr formats::IntegerRange kRange = {.min = 1, .max = kMaxHeads};
  int64_t heads = config.num_heads;
  if (root.has(kOther)) {
    const JsonObject other = root.object(kOther);
    heads = other.integer_or("num_attention_heads", heads, kRange);
    require_word(other, "attention_type", "sliding_attention");
    expect_equal(other, "num_attention_groups", "num_key_value_heads", config.num_kv_heads);
    expect_equal(other, "head_dim", "head_dim", config.head_dim);
  }
  heads = root.integer_or("num_sliding_attention_heads", heads, kRange);
  const bool repeats = read_layer_overrides(root, slides, config, sliding);
  if (repeats && readable(root)) {
    expect_equal(root, "num_sliding_attention_heads", "per_layer_config's", sliding->num_heads);
  }
  sliding->num_heads = static_cast<int>(heads);
  check_kind(root, *sliding);
}

void read_step_attention(const JsonObject& root, ModelConfig* config) {
  constexpr std::string_view kScale = "query_pre_attn_scalar";
  const int kv_heads =
      read_either(root, {"num_key_value_heads", "num_attention_groups"}, 8, kMaxHeads);
  read_grouped_query(root, config, {.kv_heads = kv_heads, .head_dim = 128});
  read_attention_bias(root, false, true, config);
  GroupedQueryConfig& attention = config->grouped_query;
  attention.norm = GroupedQueryConfig::Norm::kHead;
  attention.gate = GroupedQueryConfig::Gate::kHeads;
  attention.scale = 1.0f / std::sqrt(read_scale(root, kScale, config->head_dim));
  read_sliding_layers(root, read_window(root), [](int) { return false; }, config);

  std::vector<bool> slides;
  for (const LayerConfig& layer : config->layers) slides.push_back(layer.window > 0);
  AttentionKind* sliding = nullptr;
  if (root.has("rope_parameters")) {
    sliding = read_sliding_kind(root, {.rotated = 1.0}, {.rotated = 1.0}, config);
  } else {
    AttentionKind full = config->attention_kind(0);
    read_listed_rope(root, false, *config, &full);
    config->rope = full.rope;
    attention.rotary_dim = full.options.rotary_dim;
    if (std::ranges::count(slides, true) > 0) {
      sliding = add_attention_kind(slides, config);
      sliding->rope = {};
      read_listed_rope(root, true, *config, sliding);
    }
  }
  if (sliding != nullptr && readable(root)) read_sliding_heads(root, slides, *config, sliding);
}

void read_step_experts(const JsonObject& root, ModelConfig* config) {
  RoutingConfig& routing = config->routing;
  routing.method = RoutingMethod::kDeepseekV3;  // with one group
  routing.selection_bias = true;
  routing.num_experts =
      read_either(root, {"n_routed_experts", "moe_num_experts"}, 288, kMaxExperts);
  expect_equal(root, "num_local_experts", "n_routed_experts", routing.num_experts);
  routing.top_k = read_either(root, {"num_experts_per_tok", "moe_top_k"}, 8, kMaxExperts);
  check_top_k(root, "num_experts_per_tok", routing);
  routing.scaling_factor = read_scale(root, "moe_router_scaling_factor", 1.0);
  config->moe_intermediate_size = positive(root, "moe_intermediate_size", kMaxIntermediate);
  config->shared_intermediate_size =
      read_either(root, {"share_expert_dim", "share_expert_dims"}, 1280, kMaxIntermediate);
  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  if (root.has("mlp_layer_types") || !root.has("moe_layers_enum")) {
    set_first_dense(3, config);
    read_dense_layers(root, config);
  } else {
    read_listed_moe_layers(root, "moe_layers_enum", config);
  }
  const auto limits = [&](std::string_view key, float LayerConfig::* limit) {
    const std::vector<double> numbers = read_layer_numbers(root, key, config->layers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      config->layers[i].*limit = static_cast<float>(numbers[i]);
    }
  };
  limits("swiglu_limits", &LayerConfig::expert_limit);
  limits("swiglu_limits_shared", &LayerConfig::mlp_limit);
}

// What the published file says of its own code, and transformers takes for granted.
void require_published(const JsonObject& root) {
  for (const char* key : {"use_moe", "use_moe_router_bias", "norm_expert_weight", "need_fp32_gate",
                          "use_head_wise_attn_gate", "use_qk_norm", "zero_centered"}) {
    require_flag(root, key, true);
  }
  for (const char* key : {"mlp_bias", "sink", "use_bidirectional_attention"}) {
    require_flag(root, key, false);
  }
  require_word(root, "moe_router_activation", "sigmoid");
  require_word(root, "att_impl_type", "GQA");
  root.integer_or("moe_every_n_layer", 1, {.min = 1, .max = 1});
  root.integer_or("moe_layer_offset", 0, {.min = 0, .max = 0});
  const auto only = [&](std::string_view key, const nlohmann::json& value) {
    if (!root.has(key) || root.raw().at(std::string(key)) == value) return;
    root.complain(key, fmt::format("expected {}; wideep computes no other", value.dump()));
  };
  only("gating", true);
  only("use_rope_layers", nlohmann::json::array());
  only("yarn_only_types", nlohmann::json::array({"full_attention"}));
}

}  // namespace

void read_step3p7(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_step_attention(root, config);
  config->norms_add_one = true;
  read_step_experts(root, config);
  require_published(root);
  config->num_mtp_layers = static_cast<int>(
      root.integer_or("num_nextn_predict_layers", 0, {.min = 0, .max = kMaxLayers}));
  for (const char* key : {"mtp_layer_types", "mtp_mlp_layer_types"}) root.has(key);
  config->left_out = {"vision_model.", "vit_large_projector.", "model.vision_model.",
                      "model.multi_modal_projector."};
  config->tensor_names.prefix("model.", "model.language_model.")
      .rename("mlp.gate.e_score_correction_bias", "moe.router_bias")
      .rename("mlp.gate", "moe.gate")
      .rename("mlp.shared_experts", "share_expert");
  for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
    config->tensor_names.rename(fmt::format("mlp.experts.*.{}", matrix),
                                fmt::format("moe.{}", matrix));
  }
}

}  // namespace wideep::model
