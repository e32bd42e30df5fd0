// SPDX-License-Identifier: Apache-2.0
//
// Llama 4 (text): three of four layers rotate and attend within chunks, the others attend to all
// positions, without rotation.
#include <fmt/format.h>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

constexpr std::string_view kNoRope = "no_rope_layers";

// A 1 in no_rope_layers says that the layer does rotate.
void read_rotations(const JsonObject& root, ModelConfig* config) {
  const int64_t interval =
      root.integer_or("no_rope_layer_interval", 4, {.min = 1, .max = kMaxLayers});
  const std::vector<int64_t> listed = root.integers_or(kNoRope, {}, {.min = 0, .max = 1});
  if (!readable(root)) return;
  if (!listed.empty() && listed.size() < config->layers.size()) {
    root.complain(kNoRope, fmt::format("expected 0 or 1 for each of the {} layers, found {}",
                                       config->num_layers, listed.size()));
    return;
  }
  for (size_t i = 0; i < config->layers.size(); ++i) {
    config->layers[i].rotates =
        listed.empty() ? (static_cast<int64_t>(i) + 1) % interval != 0 : listed[i] == 1;
  }
}

// A null attention_chunk_size: all layers attend to all positions.
void read_chunks(const JsonObject& root, ModelConfig* config) {
  constexpr std::string_view kChunk = "attention_chunk_size";
  const auto chunk =
      static_cast<int>(root.integer_or(kChunk, 8192, {.min = 1, .max = kMaxPositions}));
  const bool none = is_null(root, kChunk);
  const std::vector<bool> is_chunked = read_layer_types(
      root, *config, "chunked_attention", "full_attention",
      [&](int layer) { return config->layers[static_cast<size_t>(layer)].rotates && !none; });
  for (size_t i = 0; i < is_chunked.size(); ++i) {
    if (!is_chunked[i]) continue;
    if (none) root.complain(kChunk, "null; layer_types has layers of chunked_attention");
    config->layers[i].chunk = chunk;
  }
}

void read_moe_layers(const JsonObject& root, ModelConfig* config) {
  const int64_t step =
      root.integer_or("interleave_moe_layer_step", 1, {.min = 1, .max = kMaxLayers});
  const bool listed = root.has("moe_layers");
  if (!readable(root)) return;
  for (int layer = 0; layer < config->num_layers; ++layer) {
    config->layers[static_cast<size_t>(layer)].is_moe = !listed && (layer + 1) % step == 0;
  }
  for (const int64_t layer : root.integers_or("moe_layers", {}, {.min = 0, .max = kMaxLayers})) {
    if (layer < config->num_layers) config->layers[static_cast<size_t>(layer)].is_moe = true;
  }
}

// A flag, which older files write as a number.
bool read_temperature_tuning(const JsonObject& root) {
  constexpr std::string_view kKey = "attn_temperature_tuning";
  const auto found = root.raw().find(std::string(kKey));
  if (found == root.raw().end() || !found->is_number_integer()) return root.boolean_or(kKey, true);
  return root.integer(kKey) != 0;
}

void read_llama4_attention(const JsonObject& root, ModelConfig* config) {
  read_grouped_query(root, config, {.kv_heads = 8, .head_dim = 128});
  read_attention_bias(root, false, true, config);
  GroupedQueryConfig& attention = config->grouped_query;
  if (root.boolean_or("use_qk_norm", true)) attention.norm = GroupedQueryConfig::Norm::kHead;
  attention.norm_has_weight = false;
  attention.norm_after_rotation = attention.norm_rotated_only = true;
  const float temperature = read_scale(root, "attn_scale", 0.1);
  if (read_temperature_tuning(root)) attention.temperature = temperature;
  attention.temperature_floor = read_scale(root, "floor_scale", 8192);
  config->rope = read_rope(root, *config, 5e5);
  config->rope.interleaved = true;
  read_rotations(root, config);
  read_chunks(root, config);
}

}  // namespace

void read_llama4(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_llama4_attention(root, config);
  config->dense_intermediate_size = static_cast<int>(
      root.integer_or("intermediate_size_mlp", 16384, {.min = 1, .max = kMaxIntermediate}));
  read_experts(root, {.width = "intermediate_size", .num_experts = 16, .num_chosen = 1}, config);
  read_moe_layers(root, config);
  config->shared_intermediate_size = config->moe_intermediate_size;
  config->weight_on_input = true;
  config->routing.method = RoutingMethod::kLlama4;
  config->routing.normalize = false;
  if (config->routing.top_k > 1) {
    root.complain("num_experts_per_tok",
                  fmt::format("expected 1 (an expert's input is multiplied by its weight, which "
                              "wideep computes for one expert per token), found {}",
                              config->routing.top_k));
  }
  config->left_out = {"vision_model.", "multi_modal_projector."};
  config->tensor_names.prefix("", "language_model.")
      .fuse_experts("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj",
                    weights::GateUp::kHalves, true)
      .rename("mlp.gate", "feed_forward.router")
      .rename("mlp.shared_experts", "feed_forward.shared_expert")
      .rename("mlp", "feed_forward");
}

}  // namespace wideep::model
