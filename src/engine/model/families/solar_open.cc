// SPDX-License-Identifier: Apache-2.0
//
// Upstage Solar Open: GLM-4.5's attention without norms, whose heads are rotated as a whole, and
// its experts in every layer.
#include "model/families/family.h"

namespace wideep::model {

void read_solar_open(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_flag(root, "use_qk_norm", false);
  read_grouped_query(root, config, {.kv_heads = 8, .head_dim = 128});
  read_attention_bias(root, false, false, config);
  config->rope = read_rope(root, *config, 1e6);
  require_whole_rotary(root);
  require_full_attention(root, *config);

  constexpr DeepseekDefaults kDefaults = {.shared_experts = 1,
                                          .experts = 128,
                                          .top_k = 8,
                                          .groups = 1,
                                          .top_k_groups = 1,
                                          .normalize = true,
                                          .scaling_factor = 1.0};
  // No layer is dense, so that the size of dense layers has no effect.
  root.integer_or("first_k_dense_replace", 0, {.min = 0, .max = 0});
  root.integer_or("intermediate_size", 1, {.min = 1, .max = kMaxIntermediate});
  read_deepseek_experts(root, kDefaults, config);
  read_deepseek_routing(root, kDefaults, config);
}

}  // namespace wideep::model
