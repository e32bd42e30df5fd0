// SPDX-License-Identifier: Apache-2.0
//
// GLM-4.5, 4.6 and 4.7 (arXiv:2508.06471): grouped queries with DeepSeek-V3's experts.
#include "model/families/family.h"

namespace wideep::model {

void read_glm4_moe(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config, {.kv_heads = 8});
  read_partial_rotary(root, 0.5, config);
  read_attention_bias(root, false, false, config);
  if (root.boolean_or("use_qk_norm", false)) {
    config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  }
  config->rope = read_rope(root, *config, 1e4);
  require_full_attention(root, *config);

  constexpr DeepseekDefaults kDefaults = {.dense_layers = 1,
                                          .shared_experts = 1,
                                          .mtp_layers = 1,
                                          .experts = 128,
                                          .top_k = 8,
                                          .groups = 1,
                                          .top_k_groups = 1,
                                          .normalize = true,
                                          .scaling_factor = 1.0};
  read_deepseek_layers(root, kDefaults, config);
  read_deepseek_routing(root, kDefaults, config);
}

}  // namespace wideep::model
