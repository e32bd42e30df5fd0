// SPDX-License-Identifier: Apache-2.0
//
// Qwen1.5-MoE and Qwen2-MoE (arXiv:2407.10671).
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// As transformers: the even layers below max_window_layers slide. sliding_window has no effect
// without use_sliding_window.
void read_windows(const JsonObject& root, ModelConfig* config) {
  constexpr std::string_view kSlides = "use_sliding_window";
  const bool slides = root.boolean_or(kSlides, false);
  const int window = read_window(root, 4096);
  const int64_t below = root.integer_or("max_window_layers", 28, {.min = 0, .max = kMaxLayers});
  for (const std::string& type : read_layer_words(root, "layer_types", config->num_layers)) {
    if (slides || type != "sliding_attention") continue;
    root.complain(kSlides,
                  "expected true, because layer_types has layers of sliding_attention, "
                  "found false");
  }
  read_sliding_layers(
      root, window,
      [&](int layer) { return slides && window > 0 && layer % 2 == 0 && layer < below; }, config);
}

}  // namespace

void read_qwen2_moe(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config, {.kv_heads = 16});
  config->grouped_query.qkv_bias = root.boolean_or("qkv_bias", true);
  config->rope = read_rope(root, *config, 1e4);

  read_windows(root, config);

  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  read_qwen_experts(root, {.num_experts = 60, .num_chosen = 4}, false, config);
  read_sparse_steps(root, config);
}

}  // namespace wideep::model
