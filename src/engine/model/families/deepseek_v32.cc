// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3.2 (arXiv:2512.02556): V3 with an indexer in every layer.
#include "model/families/family.h"

namespace wideep::model {

void read_deepseek_v32(const formats::JsonObject& root, ModelConfig* config) {
  constexpr DeepseekDefaults kDefaults = {.dense_layers = 3,
                                          .shared_experts = 1,
                                          .mtp_layers = 1,
                                          .experts = 256,
                                          .top_k = 8,
                                          .groups = 8,
                                          .top_k_groups = 4,
                                          .normalize = true,
                                          .scaling_factor = 2.5};
  read_sparse_latent(root, kDefaults, config);
  require_flag(root, "indexer_rope_interleave", false);
  read_indexer(root, false, config);
}

}  // namespace wideep::model
