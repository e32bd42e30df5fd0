// SPDX-License-Identifier: Apache-2.0
//
// Qwen1.5-MoE and Qwen2-MoE (arXiv:2407.10671).
#include "model/families/family.h"

namespace wideep::model {

using formats::JsonObject;

void read_qwen2_moe(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config, {.kv_heads = 16});
  config->grouped_query.qkv_bias = root.boolean_or("qkv_bias", true);
  config->rope = read_rope(root, *config, 1e4);

  // As transformers: the even layers below max_window_layers.
  const auto slides = [](int layer, int64_t below) { return layer % 2 == 0 && layer < below; };
  read_qwen_windows(root, slides, config);

  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  read_qwen_experts(root, {.num_experts = 60, .num_chosen = 4}, false, config);
  read_sparse_steps(root, config);
}

}  // namespace wideep::model
