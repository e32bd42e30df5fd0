// SPDX-License-Identifier: Apache-2.0
//
// Qwen3.5-MoE and Qwen3.6-MoE (text): Qwen3-Next with the delta net's projections apart. All layers
// are MoE layers.
#include "model/families/family.h"

namespace wideep::model {

void read_qwen3_5_moe(const formats::JsonObject& root, ModelConfig* config) {
  read_gated_layers(root, config);
  require_flag(root, "norm_topk_prob", true);
  read_qwen_experts(root, {.num_experts = 256, .num_chosen = 8}, true, config);
  root.has("intermediate_size");  // of dense layers, which there are not
  root.integer_or("decoder_sparse_step", 1, {.min = 1, .max = 1});
  if (!root.integers_or("mlp_only_layers", {}).empty()) {
    root.complain("mlp_only_layers", "expected no layers (all are MoE layers), found some");
  }
  config->tensor_names.prefix("model.", "model.language_model.");
}

}  // namespace wideep::model
