// SPDX-License-Identifier: Apache-2.0
//
// The dense models of Qwen: Qwen2 and 2.5 (arXiv:2407.10671, 2412.15115) with biases of queries,
// keys and values, Qwen3 (arXiv:2505.09388) with norms of queries and keys.
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

void read_common(const JsonObject& root, const HeadDefaults& heads, ModelConfig* config) {
  require_silu(root);
  require_whole_rotary(root);
  require_flag(root, "mlp_bias", false);
  read_grouped_query(root, config, heads);
  config->rope = read_rope(root, *config, 1e4);
  // The layers from max_window_layers on.
  read_qwen_windows(root, [](int layer, int64_t from) { return layer >= from; }, config);
  read_dense_mlps(root, config);
}

}  // namespace

void read_qwen_windows(const JsonObject& root,
                       const std::function<bool(int layer, int64_t max_window_layers)>& slides,
                       ModelConfig* config) {
  constexpr std::string_view kSlides = "use_sliding_window";
  const bool has_windows = root.boolean_or(kSlides, false);
  const int window = read_window(root, 4096);
  const int64_t max_layers =
      root.integer_or("max_window_layers", 28, {.min = 0, .max = kMaxLayers});
  for (const std::string& type : read_layer_words(root, "layer_types", config->num_layers)) {
    if (has_windows || type != "sliding_attention") continue;
    root.complain(kSlides,
                  "expected true, because layer_types has layers of sliding_attention, "
                  "found false");
  }
  read_sliding_layers(
      root, window,
      [&](int layer) { return has_windows && window > 0 && slides(layer, max_layers); }, config);
}

void read_qwen2(const JsonObject& root, ModelConfig* config) {
  read_common(root, {.kv_heads = 32}, config);
  require_flag(root, "qkv_bias", true);
  config->grouped_query.qkv_bias = true;
}

void read_qwen3(const JsonObject& root, ModelConfig* config) {
  read_common(root, {.kv_heads = 32, .head_dim = 128}, config);
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  read_attention_bias(root, false, true, config);
}

}  // namespace wideep::model
