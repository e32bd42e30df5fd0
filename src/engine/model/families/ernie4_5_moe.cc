// SPDX-License-Identifier: Apache-2.0
//
// Baidu ERNIE 4.5 MoE (text).
#include <algorithm>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// A layer is a MoE layer if it lies within start and end and its number, from 1, is a multiple of
// the interval.
void read_moe_layers(const JsonObject& root, ModelConfig* config) {
  const formats::IntegerRange layers = {.min = 0, .max = kMaxLayers};
  const int64_t start = root.integer_or("moe_layer_start_index", 1, layers);
  const int64_t end = root.integer_or("moe_layer_end_index", -1, {.min = -1, .max = kMaxLayers});
  const int64_t last = end < 0 ? config->num_layers - 1 : end;
  const int64_t interval =
      std::max<int64_t>(1, root.integer_or("moe_layer_interval", 1, {.min = 1, .max = kMaxLayers}));
  for (int layer = 0; layer < config->num_layers; ++layer) {
    config->layers[static_cast<size_t>(layer)].is_moe =
        (layer + 1) % interval == 0 && layer >= start && layer <= last;
  }
}

// transformers also knows the two keys under the names that others use.
ExpertKeys expert_keys(const JsonObject& root) {
  const bool renamed = !root.has("moe_num_experts") && root.has("num_experts");
  return {.experts = renamed ? "num_experts" : "moe_num_experts",
          .top_k = !root.has("moe_k") && root.has("num_experts_per_tok") ? "num_experts_per_tok"
                                                                         : "moe_k",
          .num_experts = 64,
          .num_chosen = 6};
}

}  // namespace

void read_ernie4_5_moe(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_flag(root, "use_bias", false);
  config->tie_word_embeddings = root.boolean_or("tie_word_embeddings", true);
  read_grouped_query(root, config, {.kv_heads = 4});
  config->rope = read_rope(root, *config, 5e5);
  config->rope.interleaved = true;
  require_full_attention(root, *config);

  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  read_moe_layers(root, config);
  read_experts(root, expert_keys(root), config);
  const auto shared =
      root.integer_or("moe_num_shared_experts", 2, {.min = 0, .max = kMaxSharedExperts});
  config->shared_intermediate_size = static_cast<int>(shared) * config->moe_intermediate_size;
  RoutingConfig& routing = config->routing;
  routing.method = RoutingMethod::kErnie;
  routing.selection_bias = root.boolean_or("moe_use_aux_free", true);
  routing.epsilon =
      static_cast<float>(root.number_or("moe_norm_min", 1e-12, {.min = 1e-30, .max = 1.0}));
  root.integer_or("num_nextn_predict_layers", 0, {.min = 0, .max = kMaxLayers});
  config->left_out = {"model.mtp"};
  config->tensor_names
      .rename("mlp.gate.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias")
      .rename("mlp.gate.e_score_correction_bias", "mlp.gate.moe_statics.e_score_correction_bias");
}

}  // namespace wideep::model
