// SPDX-License-Identifier: Apache-2.0
//
// Xiaomi MiMo-V2-Flash: layers with windows have sinks, twice the heads of keys and values, and a
// rotation of their own; values are shorter than keys, and scaled.
//
// transformers does not read most keys of the published file, and computes what they say for it. So
// other values of them are refused.
#include <fmt/format.h>

#include <algorithm>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// sliding_window_size counts the positions before a token, and comes first.
int read_mimo_window(const JsonObject& root) {
  constexpr std::string_view kKey = "sliding_window", kBefore = "sliding_window_size";
  const auto window =
      static_cast<int>(root.integer_or(kKey, 129, {.min = 1, .max = kMaxPositions}));
  if (!root.has(kBefore)) return window;
  const auto before = static_cast<int>(root.integer(kBefore, {.min = 0, .max = kMaxPositions - 1}));
  if (root.has(kKey) && window != before && window != before + 1) {
    root.complain(kKey,
                  fmt::format("expected {} {}, or one more, found {}", kBefore, before, window));
  }
  return before + 1;
}

// A list of 0 and 1 for each layer.
void check_list(const JsonObject& root, std::string_view key, const ModelConfig& config,
                bool (*expected)(const LayerConfig&)) {
  const std::vector<int64_t> list = root.integers_or(key, {}, {.min = 0, .max = 1});
  for (size_t i = 0; i < std::min(list.size(), config.layers.size()); ++i) {
    if ((list[i] == 1) == expected(config.layers[i])) continue;
    root.complain(fmt::format("{}[{}]", key, i),
                  fmt::format("expected {}, as the other keys say, or the family without them, "
                              "found {}",
                              1 - list[i], list[i]));
  }
}

void check_published(const JsonObject& root, const ModelConfig& config) {
  expect_equal(root, "swa_num_attention_heads", "num_attention_heads", config.num_heads);
  expect_equal(root, "swa_num_key_value_heads", "twice num_key_value_heads,",
               2 * config.num_kv_heads);
  expect_equal(root, "swa_head_dim", "head_dim", config.head_dim);
  expect_equal(root, "swa_v_head_dim", "v_head_dim", config.v_head_dim);
  require_flag(root, "add_swa_attention_sink_bias", true);
  require_flag(root, "add_full_attention_sink_bias", false);
  root.integer_or("n_shared_experts", 0, {.min = 0, .max = 0});
  root.has("attention_chunk_size");  // without effect
  const auto expect_number = [&](std::string_view key, double expected) {
    const double found = root.number_or(key, expected);
    if (static_cast<float>(found) == static_cast<float>(expected)) return;
    root.complain(key, fmt::format("expected {:.6g}, as the other keys say, or the family without "
                                   "them, found {}",
                                   expected, found));
  };
  expect_number("layernorm_epsilon", static_cast<double>(config.rms_norm_eps));
  if (!config.other_kinds.empty()) {
    expect_number("swa_rope_theta", config.other_kinds.front().rope.theta);
  }
  check_list(root, "hybrid_layer_pattern", config,
             [](const LayerConfig& layer) { return layer.window > 0; });
  check_list(root, "moe_layer_freq", config, [](const LayerConfig& layer) { return layer.is_moe; });
}

void read_mimo_attention(const JsonObject& root, ModelConfig* config) {
  constexpr std::string_view kScale = "attention_value_scale";
  read_grouped_query(root, config, {.kv_heads = 4, .head_dim = 192});
  config->v_head_dim =
      static_cast<int>(root.integer_or("v_head_dim", 128, {.min = 1, .max = kMaxHeadDim}));
  read_attention_bias(root, false, false, config);
  const float scale = read_scale(root, kScale, 0.707);
  config->grouped_query.value_scale = is_null(root, kScale) ? 1.0f : scale;
  read_sliding_layers(
      root, read_mimo_window(root), [](int layer) { return layer != 0 && (layer + 1) % 6 != 0; },
      config);
  constexpr double kRotated = 0.334;
  AttentionKind* const sliding =
      read_sliding_kind(root, {.theta = 5e6, .rotated = kRotated, .rotated_if_absent = kRotated},
                        {.theta = 1e4, .rotated = kRotated, .rotated_if_absent = kRotated}, config);
  if (sliding == nullptr) return;
  sliding->num_kv_heads *= 2;
  sliding->options.sinks = true;
  check_kind(root, *sliding);
}

}  // namespace

void read_mimo_v2_flash(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_mimo_attention(root, config);
  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  config->moe_intermediate_size = positive(root, "moe_intermediate_size", kMaxIntermediate);
  set_first_dense(1, config);
  read_dense_layers(root, config);
  read_deepseek_routing(root,
                        {.experts = 256,
                         .top_k = 8,
                         .groups = 1,
                         .top_k_groups = 1,
                         .normalize = true,
                         .scaling_factor = 1.0},
                        config);
  if (readable(root)) check_published(root, *config);
  config->num_mtp_layers = static_cast<int>(
      root.integer_or("num_nextn_predict_layers", 0, {.min = 0, .max = kMaxLayers}));
  config->left_out = {"model.mtp."};
  config->tensor_names.rename("self_attn.sinks", "self_attn.attention_sink_bias");
}

}  // namespace wideep::model
