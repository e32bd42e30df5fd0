// SPDX-License-Identifier: Apache-2.0
//
// Mistral 4: DeepSeek's latent attention and experts, with scores of a softmax and with queries that
// are scaled by position. Files of the model with pictures have it as the text of Mistral 3.
#include <array>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

constexpr std::string_view kBeta = "llama_4_scaling_beta";
constexpr std::string_view kFloor = "original_max_position_embeddings";
// Beside those of the rotation; max_position_embeddings repeats the one outside.
constexpr std::array kMoreKeys = {kBeta, std::string_view("max_position_embeddings")};

// 1 + β · ln(1 + ⌊position / original positions⌋), by the keys of the rotation.
void read_temperature(const JsonObject& root, ModelConfig* config) {
  bool found = false;
  for (const char* spelling : {"rope_scaling", "rope_parameters"}) {
    if (!root.has(spelling)) continue;
    const JsonObject rope = root.object(spelling);
    const auto beta = static_cast<float>(rope.number(kBeta, {.min = 0, .max = 1e3}));
    if (found && beta != config->latent_temperature) {
      rope.complain(kBeta, "contradicts rope_scaling's; give one of them");
    }
    found = true;
    config->latent_temperature = beta;
    if (beta == 0) continue;
    const int64_t floor = rope.integer(kFloor, {.min = 1, .max = kMaxPositions});
    config->latent_temperature_floor = static_cast<float>(floor);
    expect_equal(root, kFloor, "that of the rotary parameters,", floor);
  }
  if (!found) root.complain("rope_parameters", "missing; they say how queries are scaled, too");
}

}  // namespace

void read_mistral4(const JsonObject& root, ModelConfig* config) {
  constexpr DeepseekDefaults kDefaults = {.shared_experts = 1,
                                          .experts = 128,
                                          .top_k = 4,
                                          .groups = 1,
                                          .top_k_groups = 1,
                                          .normalize = true,
                                          .scaling_factor = 1.0,
                                          .softmax = true};
  require_silu(root);
  read_latent_attention(root, config, true);
  constexpr std::string_view kQueryRank = "q_lora_rank";
  if (!root.has(kQueryRank) && !is_null(root, kQueryRank)) config->q_lora_rank = 1024;
  read_deepseek_layers(root, kDefaults, config);
  config->names_mtp_layers = false;
  read_deepseek_routing(root, kDefaults, config);
  config->rope = read_rope(root, *config, 1e4, kMoreKeys);
  config->rope.interleaved = flag_or_null(root, "rope_interleave", true);
  read_temperature(root, config);
  require_full_attention(root, *config);
  config->tensor_names.prefix("", "language_model.")
      .prefix("model.", "model.language_model.")
      .prefix("model.", "language_model.");
  config->left_out = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                      "model.multi_modal_projector."};
}

}  // namespace wideep::model
