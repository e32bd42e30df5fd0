// SPDX-License-Identifier: Apache-2.0
//
// MiniMax-M2 and M2.5: queries and keys are normalised over all heads, a part of a head is rotated.
#include <fmt/format.h>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// The layers that predict further tokens follow the last one.
void read_mtp(const JsonObject& root, ModelConfig* config) {
  const formats::IntegerRange layers = {.min = 0, .max = 16};
  const int64_t modules = root.integer_or("num_mtp_modules", 0, layers);
  const int64_t each = root.integer_or("mtp_transformer_layers", 1, layers);
  if (root.boolean_or("use_mtp", true)) config->num_mtp_layers = static_cast<int>(modules * each);
  config->left_out = {"model.mtp", "mtp."};
}

}  // namespace

void read_minimax_rotary(const JsonObject& root, ModelConfig* config) {
  constexpr std::string_view kKey = "rotary_dim";
  const int64_t dim = root.integer_or(kKey, config->head_dim, {.min = 2, .max = config->head_dim});
  read_partial_rotary(root, static_cast<double>(dim) / config->head_dim, config);
  if (readable(root) && root.has(kKey)) {
    expect_equal(root, kKey, "head_dim · partial_rotary_factor", config->grouped_query.rotary_dim);
  }
}

void read_minimax_m2(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config, {.kv_heads = 8, .head_dim = 128});
  if (readable(root)) read_minimax_rotary(root, config);
  require_flag(root, "use_qk_norm", true);
  require_word(root, "qk_norm_type", "per_layer");
  config->grouped_query.norm = GroupedQueryConfig::Norm::kAllHeads;
  config->rope = read_rope(root, *config, 5e6);
  root.integer_or("sliding_window", 0, {.min = 0, .max = 0});
  require_full_attention(root, *config);

  read_experts(root, {.width = "intermediate_size", .num_experts = 256, .num_chosen = 8}, config);
  config->routing.method = RoutingMethod::kMinimax2;
  config->routing.selection_bias = true;
  require_flag(root, "use_routing_bias", true);
  require_word(root, "scoring_func", "sigmoid");
  root.integer_or("shared_intermediate_size", 0, {.min = 0, .max = 0});
  read_mtp(root, config);
  name_experts_w123("block_sparse_moe", &config->tensor_names);
  config->tensor_names
      .rename("mlp.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias")
      .rename("mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias")
      .rename("mlp.gate", "block_sparse_moe.gate");
}

}  // namespace wideep::model
