// SPDX-License-Identifier: Apache-2.0
//
// dots.llm1 (arXiv:2506.05767): grouped queries with norms per head, and DeepSeek-V3's experts.
#include "model/families/family.h"

namespace wideep::model {

void read_dots1(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config, {.kv_heads = 32});
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  read_attention_bias(root, false, true, config);
  config->rope = read_rope(root, *config, 1e4);
  require_whole_rotary(root);
  const int window = read_window(root, 4096);
  const int64_t from = root.integer_or("max_window_layers", 62, {.min = 0, .max = kMaxLayers});
  const auto slides = [&](int layer) { return window > 0 && layer >= from; };
  read_sliding_layers(root, window, slides, config);

  constexpr DeepseekDefaults kDefaults = {
      .groups = 1, .top_k_groups = 1, .normalize = false, .scaling_factor = 1.0};
  root.integer("n_shared_experts", {.min = 0, .max = kMaxSharedExperts});  // required
  read_deepseek_layers(root, kDefaults, config);
  read_deepseek_routing(root, kDefaults, config);
}

}  // namespace wideep::model
