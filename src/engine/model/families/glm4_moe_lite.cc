// SPDX-License-Identifier: Apache-2.0
//
// GLM-4.7-Flash: DeepSeek-V3's attention and experts.
#include "model/families/family.h"

namespace wideep::model {

void read_glm4_moe_lite(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_latent_attention(root, config);
  config->rope = read_rope(root, *config, 1e4);
  config->rope.interleaved = root.boolean_or("rope_interleave", true);
  root.number_or("partial_rotary_factor", 1.0, {.min = 1.0, .max = 1.0});
  require_full_attention(root, *config);

  constexpr DeepseekDefaults kDefaults = {.dense_layers = 1,
                                          .shared_experts = 1,
                                          .mtp_layers = 1,
                                          .experts = 64,
                                          .top_k = 4,
                                          .groups = 1,
                                          .top_k_groups = 1,
                                          .normalize = true,
                                          .scaling_factor = 1.8};
  read_deepseek_layers(root, kDefaults, config);
  read_dense_layers(root, config);
  read_deepseek_routing(root, kDefaults, config);
}

}  // namespace wideep::model
