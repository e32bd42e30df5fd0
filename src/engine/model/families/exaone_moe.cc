// SPDX-License-Identifier: Apache-2.0
//
// LG K-EXAONE: windows in three of four layers, and no rotation in the others; DeepSeek-V3's
// experts.
#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// Layers that attend to all positions do not rotate.
void read_exaone_layers(const JsonObject& root, ModelConfig* config) {
  constexpr std::string_view kPattern = "sliding_window_pattern";
  const int window =
      static_cast<int>(root.integer_or("sliding_window", 4096, {.min = 1, .max = kMaxPositions}));
  // With layer_types the pattern has no effect; it may be a word such as LLLG then.
  const bool listed = root.has("layer_types");
  root.has(kPattern);
  const int64_t period =
      listed || !root.has(kPattern) ? 4 : root.integer(kPattern, {.min = 1, .max = kMaxLayers});
  if (!readable(root)) return;
  read_sliding_layers(root, window, [&](int layer) { return (layer + 1) % period != 0; }, config);
  for (LayerConfig& layer : config->layers) layer.rotates = layer.window > 0;
}

// Keys of the first published files, which transformers does not read: they repeat which layers are
// dense.
void check_first_published(const JsonObject& root, const ModelConfig& config) {
  constexpr std::string_view kList = "is_moe_layer";
  const auto moe = std::ranges::find(config.layers, true, &LayerConfig::is_moe);
  expect_equal(root, "first_last_k_dense_replace", "first_k_dense_replace",
               moe - config.layers.begin());
  if (!root.has(kList)) return;
  nlohmann::json expected = nlohmann::json::array();
  for (const LayerConfig& layer : config.layers) expected.push_back(layer.is_moe);
  const nlohmann::json& found = root.raw().at(std::string(kList));
  if (found == expected) return;
  root.complain(kList, fmt::format("expected {}, as the other keys say, found {}", expected.dump(),
                                   base::printable(found.dump(), 300)));
}

// A dense layer. Whether it has a window, its file says; transformers leaves it out.
void read_exaone_mtp(const JsonObject& root, ModelConfig* config) {
  config->left_out = {"mtp."};
  config->prediction_layer.is_moe = false;
  config->names_mtp_layers = config->num_mtp_layers == 1 && root.has("mtp_layer_types") &&
                             readable(root) && set_prediction_window(root, false, config);
  name_mtp_layer(config);
}

}  // namespace

void read_exaone_moe(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_flag(root, "attention_bias", false);
  read_grouped_query(root, config, {.kv_heads = 32});
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  config->rope = read_rope(root, *config, 1e4);
  require_whole_rotary(root);
  read_exaone_layers(root, config);

  constexpr DeepseekDefaults kDefaults = {.dense_layers = 1,
                                          .shared_experts = 1,
                                          .experts = 64,
                                          .top_k = 8,
                                          .groups = 1,
                                          .top_k_groups = 1,
                                          .normalize = true,
                                          .scaling_factor = 2.5,
                                          .experts_key = "num_experts",
                                          .shared_key = "num_shared_experts"};
  read_deepseek_layers(root, kDefaults, config);
  read_dense_layers(root, config);
  read_deepseek_routing(root, kDefaults, config);
  if (readable(root)) check_first_published(root, *config);
  read_exaone_mtp(root, config);
  config->tensor_names.rename("mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias");
}

}  // namespace wideep::model
