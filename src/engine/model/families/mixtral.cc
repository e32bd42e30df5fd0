// SPDX-License-Identifier: Apache-2.0
//
// Mixtral (arXiv:2401.04088). A sliding_window is one of all layers.
#include "model/families/family.h"

namespace wideep::model {

void read_mixtral(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config, {.kv_heads = 8});
  config->rope = read_rope(root, *config, 1e6);
  const int window = read_window(root);
  for (LayerConfig& layer : config->layers) layer.window = window;

  read_experts(root, {.width = "intermediate_size", .num_experts = 8, .num_chosen = 2}, config);
  config->routing.method = RoutingMethod::kRenormalize;
  name_experts_w123("block_sparse_moe", &config->tensor_names);
  config->tensor_names.rename("mlp.gate", "block_sparse_moe.gate");
}

}  // namespace wideep::model
