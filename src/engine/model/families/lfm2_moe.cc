// SPDX-License-Identifier: Apache-2.0
//
// Liquid LFM2-MoE: short convolutions, and attention in some layers.
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

void read_mixers(const JsonObject& root, ModelConfig* config) {
  if (!root.has("layer_types")) {
    root.complain("layer_types", "missing; expected conv or full_attention for each layer");
  }
  const std::vector<bool> is_convolution =
      read_layer_types(root, *config, "conv", "full_attention", [](int) { return false; });
  for (size_t i = 0; i < is_convolution.size(); ++i) {
    if (is_convolution[i]) config->layers[i].mixer = LayerConfig::Mixer::kConvolution;
  }
  config->convolution_width =
      static_cast<int>(root.integer_or("conv_L_cache", 3, kConvolutionWidths));
  config->convolution_bias = root.boolean_or("conv_bias", false);
}

void name_tensors(weights::TensorNames* names) {
  names->rename("input_layernorm", "operator_norm")
      .rename("post_attention_layernorm", "ffn_norm")
      .rename("model.norm", "model.embedding_norm")
      .rename("self_attn.o_proj", "self_attn.out_proj")
      .rename("self_attn.q_norm", "self_attn.q_layernorm")
      .rename("self_attn.k_norm", "self_attn.k_layernorm")
      .rename("mlp.gate.e_score_correction_bias", "feed_forward.expert_bias");
  name_experts_w123("feed_forward", names);
  name_dense_w123("feed_forward", names);
  names->rename("mlp", "feed_forward");
}

}  // namespace

void read_lfm2_moe(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  const bool tied = root.boolean_or("tie_word_embeddings", true);
  config->tie_word_embeddings = root.boolean_or("tie_embedding", tied);
  read_grouped_query(root, config, {.kv_heads = 8});
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  config->rope = read_rope(root, *config, 1e6);
  require_flag(root, "use_pos_enc", true);
  read_mixers(root, config);

  set_first_dense(root.integer_or("num_dense_layers", 2, {.min = 0, .max = kMaxLayers}), config);
  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  read_experts(root, {.num_experts = 32, .num_chosen = 4}, config);
  RoutingConfig& routing = config->routing;
  routing.method = RoutingMethod::kDeepseekV3;  // with one group
  routing.selection_bias = root.boolean_or("use_expert_bias", true);
  routing.normalize = root.boolean_or("norm_topk_prob", true);
  routing.scaling_factor = read_scale(root, "routed_scaling_factor", 1.0);
  routing.epsilon = 1e-6f;
  name_tensors(&config->tensor_names);
}

}  // namespace wideep::model
