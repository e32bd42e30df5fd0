// SPDX-License-Identifier: Apache-2.0
//
// Mistral (arXiv:2310.06825): dense. A sliding_window is one of all layers.
#include "model/families/family.h"

namespace wideep::model {

void read_mistral(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_whole_rotary(root);
  read_grouped_query(root, config, {.kv_heads = 8});
  config->rope = read_rope(root, *config, 1e4);
  const int window = read_window(root, 4096);
  for (LayerConfig& layer : config->layers) layer.window = window;
  read_dense_mlps(root, config);
}

}  // namespace wideep::model
