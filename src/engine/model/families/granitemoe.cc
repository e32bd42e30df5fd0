// SPDX-License-Identifier: Apache-2.0
//
// IBM Granite 3 MoE, with and without a shared MLP (granitemoeshared); and what Granite 4
// (granitemoehybrid.cc) has of it.
#include "model/families/family.h"

namespace wideep::model {

void read_granite_attention(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config);
  read_attention_bias(root, false, true, config);
  config->grouped_query.scale = read_scale(root, "attention_multiplier", 1.0);
  config->rope = read_rope(root, *config, 1e4);
  config->embedding_scale = read_scale(root, "embedding_multiplier", 1.0);
  config->residual_scale = read_scale(root, "residual_multiplier", 1.0);
  config->logits_scale = 1.0f / read_scale(root, "logits_scaling", 1.0);
}

void read_granite_experts(const formats::JsonObject& root, ModelConfig* config) {
  read_experts(root, {.width = "intermediate_size", .num_experts = 8, .num_chosen = 2}, config);
  config->routing.method = RoutingMethod::kRenormalize;
  config->tensor_names.fuse_experts("block_sparse_moe.input_linear",
                                    "block_sparse_moe.output_linear");
  name_experts_below("block_sparse_moe", &config->tensor_names);
  config->tensor_names
      .fuse_mlp("mlp.shared_experts", "shared_mlp.input_linear", "shared_mlp.output_linear")
      .rename("mlp.gate", "block_sparse_moe.router.layer")
      .rename("mlp.gate", "block_sparse_moe.router");
}

void read_granitemoe(const formats::JsonObject& root, ModelConfig* config) {
  read_granite_attention(root, config);
  require_full_attention(root, *config);
  read_granite_experts(root, config);
  config->shared_intermediate_size = static_cast<int>(
      root.integer_or("shared_intermediate_size", 0, {.min = 0, .max = kMaxIntermediate}));
}

}  // namespace wideep::model
