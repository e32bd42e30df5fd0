// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3 and R1 (arXiv:2412.19437), Kimi-K2; the text part of Kimi-K2.5.
#include "model/families/family.h"

namespace wideep::model {

void read_deepseek_v3(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_flag(root, "mlp_bias", false);
  read_latent_attention(root, config);
  read_deepseek_layers(root, {}, config);
  read_deepseek_routing(root, {}, config);
  config->rope = read_rope(root, *config);
  config->rope.interleaved = root.boolean_or("rope_interleave", true);
  require_full_attention(root, *config);
  config->tensor_names.prefix("", "language_model.");
  config->left_out = {"vision_tower.", "mm_projector."};
}

}  // namespace wideep::model
