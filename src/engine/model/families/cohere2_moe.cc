// SPDX-License-Identifier: Apache-2.0
//
// Cohere Command A+: attention and experts side by side behind one layer norm; windows in three of
// four layers, and no rotation in the others; logits that are scaled.
#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// Layers of an RMS norm, if there is an epsilon for one.
void read_cohere_norms(const JsonObject& root, ModelConfig* config) {
  const double epsilon = root.number_or("layer_norm_eps", 1e-5, {.min = 1e-12, .max = 0.1});
  config->layer_norms = !root.has("rms_norm_eps");
  if (config->layer_norms) config->rms_norm_eps = static_cast<float>(epsilon);
}

// The first layers may be dense, and have a pattern of windows of their own. Of those without a
// window, dense ones rotate where none of them has one by that pattern.
void read_cohere_layers(const JsonObject& root, ModelConfig* config) {
  constexpr formats::IntegerRange kPattern = {.min = 1, .max = kMaxLayers};
  const int64_t dense =
      root.integer_or("first_k_dense_replace", 0, {.min = 0, .max = config->num_layers});
  const int64_t before = root.integer_or("prefix_dense_sliding_window_pattern", 1, kPattern);
  const int64_t after = root.integer_or("sliding_window_pattern", 4, kPattern);
  if (!readable(root)) return;
  read_sliding_layers(
      root, read_window(root, 4096),
      [&](int layer) {
        return layer < dense ? (layer + 1) % before != 0 : (layer - dense + 1) % after != 0;
      },
      config);
  set_first_dense(dense, config);
  if (!root.has("first_k_dense_replace")) read_dense_layers(root, config);
  for (LayerConfig& layer : config->layers) {
    layer.rotates = layer.window > 0 || (!layer.is_moe && before == 1);
  }
}

void read_cohere_routing(const JsonObject& root, RoutingConfig* routing) {
  constexpr std::string_view kScores = "expert_selection_fn";
  const std::string scores = root.string_or(kScores, "softmax");
  routing->normalize = root.boolean_or("norm_topk_prob", true);
  routing->method = RoutingMethod::kRenormalize;
  if (scores == "sigmoid") routing->method = RoutingMethod::kLlama4;
  if (scores == "sigmoid" || scores == "softmax") return;
  root.complain(kScores, "expected sigmoid or softmax, found " + base::printable(scores));
}

// Shared experts are one MLP. Their output and that of the others are added, or averaged.
void read_cohere_shared(const JsonObject& root, ModelConfig* config) {
  constexpr std::string_view kStrategy = "shared_expert_combination_strategy";
  const auto shared =
      root.integer_or("num_shared_experts", 0, {.min = 0, .max = kMaxSharedExperts});
  config->shared_intermediate_size = static_cast<int>(shared) * config->moe_intermediate_size;
  const std::string strategy = root.string_or(kStrategy, "average");
  if (strategy == "average" && shared > 0) config->experts_scale = 0.5f;
  if (strategy == "average" || strategy == "sum") return;
  root.complain(kStrategy, "expected average or sum, found " + base::printable(strategy));
}

}  // namespace

void read_cohere2_moe(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_cohere_norms(root, config);
  config->parallel_parts = true;
  config->logits_scale = read_scale(root, "logit_scale", 0.0625);
  read_grouped_query(root, config, {.head_dim = 128});
  read_attention_bias(root, false, true, config);
  config->rope = read_rope(root, *config, 1e4);
  config->rope.interleaved = true;
  if (root.has("rope_scaling")) {
    root.complain("rope_scaling",
                  "expected none: in this family scaling stands in rope_parameters alone");
  }
  require_whole_rotary(root);
  root.number_or("rotary_pct", 1.0, {.min = 1.0, .max = 1.0});
  read_cohere_layers(root, config);

  read_experts(root, {.width = "intermediate_size", .num_experts = 8, .num_chosen = 2}, config);
  config->dense_intermediate_size = size_or(root, "prefix_dense_intermediate_size",
                                            config->moe_intermediate_size, kMaxIntermediate);
  read_cohere_routing(root, &config->routing);
  read_cohere_shared(root, config);
  // Command A+'s layers that predict further tokens are in no class of transformers.
  config->num_mtp_layers = static_cast<int>(
      root.integer_or("num_nextn_predict_layers", 0, {.min = 0, .max = kMaxLayers}));
}

}  // namespace wideep::model
