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
  config->rope.interleaved = flag_or_null(root, "rope_interleave", true);
  require_full_attention(root, *config);
  // Kimi-K2.5 as published, and in the two layouts of transformers. Messages name the first.
  config->tensor_names.rename("model.layers", "model.layers")
      .rename("model.layers", "model.blocks")
      .prefix("", "language_model.")
      .prefix("model.", "model.language_model.");
  config->left_out = {"vision_tower.", "mm_projector.", "model.vision_tower.",
                      "model.mm_projector."};
}

}  // namespace wideep::model
