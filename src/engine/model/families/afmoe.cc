// SPDX-License-Identifier: Apache-2.0
//
// Arcee AFMoE (Trinity): layers with windows rotate, those of full attention do not; a gate for
// each element of attention's output; norms before and after all parts.
#include <cmath>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

void read_afmoe_attention(const JsonObject& root, ModelConfig* config) {
  read_grouped_query(root, config, {.head_dim = 128});
  read_attention_bias(root, false, true, config);
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  config->grouped_query.gate = GroupedQueryConfig::Gate::kElements;
  config->rope = read_rope(root, *config, 1e4);
  const int64_t interval =
      root.integer_or("global_attn_every_n_layers", 4, {.min = 1, .max = kMaxLayers});
  if (!readable(root)) return;
  read_sliding_layers(
      root, read_window(root, 1024), [&](int layer) { return (layer + 1) % interval != 0; },
      config);
  for (LayerConfig& layer : config->layers) layer.rotates = layer.window > 0;
}

// Published files have keys of other routers, too, which transformers does not read.
void read_afmoe_routing(const JsonObject& root, RoutingConfig* routing) {
  routing->method = RoutingMethod::kDeepseekV3;  // with one group
  routing->selection_bias = true;
  routing->scaling_factor = read_scale(root, "route_scale", 1.0);
  require_flag(root, "route_norm", true);
  require_word(root, "score_func", "sigmoid");
  for (const char* key : {"n_group", "topk_group", "num_expert_groups", "num_limited_groups"}) {
    root.integer_or(key, 1, {.min = 1, .max = 1});
  }
  for (const char* key : {"load_balance_coeff", "use_grouped_mm"}) root.has(key);  // of training
}

void name_afmoe_tensors(weights::TensorNames* names) {
  names->rename("mixer_output_norm", "post_attention_layernorm")
      .rename("post_attention_layernorm", "pre_mlp_layernorm")
      .rename("mlp_output_norm", "post_mlp_layernorm")
      .rename("self_attn.g_proj", "self_attn.gate_proj")
      .rename("mlp.gate.e_score_correction_bias", "mlp.expert_bias")
      .rename("mlp.gate", "mlp.router.gate");
}

}  // namespace

void read_afmoe(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_afmoe_attention(root, config);
  config->norms_after = true;
  if (root.boolean_or("mup_enabled", false)) {
    config->embedding_scale =
        static_cast<float>(std::sqrt(static_cast<double>(config->hidden_size)));
  }
  set_first_dense(root.integer_or("num_dense_layers", 1, {.min = 0, .max = kMaxLayers}), config);
  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  read_experts(root, {.num_experts = 64, .num_chosen = 6}, config);
  const auto shared =
      root.integer_or("num_shared_experts", 2, {.min = 0, .max = kMaxSharedExperts});
  config->shared_intermediate_size = static_cast<int>(shared) * config->moe_intermediate_size;
  read_afmoe_routing(root, &config->routing);
  name_afmoe_tensors(&config->tensor_names);
}

}  // namespace wideep::model
