// SPDX-License-Identifier: Apache-2.0
//
// Microsoft Phi-3.5-MoE: layer norms with biases, a bias of the head, SparseMixer's routing, and
// frequencies for long texts.
#include <fmt/format.h>

#include <array>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// longrope, with the scale of cosines and sines under keys of its own.
void read_phi_rope(const JsonObject& root, ModelConfig* config) {
  constexpr std::array<std::string_view, 2> kScales = {"short_mscale", "long_mscale"};
  config->rope = read_rope(root, *config, 1e6, kScales);
  require_whole_rotary(root);
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  if (root.has(kOriginal)) root.integer(kOriginal, {.min = 1, .max = kMaxPositions});
  if (!config->rope.has_lengths() ||
      config->rope.original_max_position_embeddings >= config->max_position_embeddings) {
    return;
  }
  config->notes.push_back(fmt::format(
      "longrope: long_factor and long_mscale hold for texts of any length, because "
      "max_position_embeddings {} is above original_max_position_embeddings {}; set the former to "
      "the latter for the frequencies of short texts",
      config->max_position_embeddings, config->rope.original_max_position_embeddings));
}

}  // namespace

void read_phimoe(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  config->layer_norms = true;
  config->norm_bias = true;
  config->head_bias = root.boolean_or("lm_head_bias", false);
  read_grouped_query(root, config, {.kv_heads = 8});
  read_attention_bias(root, false, true, config);
  read_phi_rope(root, config);
  const int window = read_window(root);
  for (LayerConfig& layer : config->layers) layer.window = window;

  read_experts(root,
               {.experts = "num_local_experts",
                .width = "intermediate_size",
                .num_experts = 16,
                .num_chosen = 2},
               config);
  constexpr std::string_view kChosen = "num_experts_per_tok";
  if (readable(root) && config->routing.top_k != 2) {
    root.complain(kChosen, fmt::format("expected 2, which SparseMixer chooses, found {}",
                                       config->routing.top_k));
  }
  config->routing.method = RoutingMethod::kSparseMixer;
  config->routing.sparse_distance = static_cast<float>(
      2.0 * root.number_or("router_jitter_noise", 0.01, {.min = 0.0, .max = 1e3}));
  root.has("input_jitter_noise");  // of training
  name_experts_w123("block_sparse_moe", &config->tensor_names);
  config->tensor_names.rename("mlp.gate", "block_sparse_moe.gate").rename("mlp.gate", "mlp.router");
}

}  // namespace wideep::model
