// SPDX-License-Identifier: Apache-2.0
//
// Llama 2, 3, 3.1, 3.2 and 3.3 (arXiv:2407.21783), and what takes its class: dense.
#include "model/families/family.h"

namespace wideep::model {

void read_llama(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_whole_rotary(root);
  read_grouped_query(root, config);
  read_attention_bias(root, false, true, config);
  config->rope = read_rope(root, *config, 1e4);
  require_full_attention(root, *config);
  read_dense_mlps(root, config);
  config->dense_bias = root.boolean_or("mlp_bias", false);
}

}  // namespace wideep::model
