// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "model/config_fields.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

void read_attention(const JsonObject& root, ModelConfig* config) {
  config->num_kv_heads = static_cast<int>(
      root.integer_or("num_key_value_heads", config->num_heads, {.min = 1, .max = kMaxHeads}));
  config->q_lora_rank =
      static_cast<int>(root.integer_or("q_lora_rank", 0, {.min = 1, .max = kMaxHidden}));
  config->kv_lora_rank = positive(root, "kv_lora_rank", kMaxHidden);
  config->qk_nope_head_dim = positive(root, "qk_nope_head_dim", kMaxHeadDim);
  config->qk_rope_head_dim = positive(root, "qk_rope_head_dim", kMaxHeadDim);
  config->v_head_dim = positive(root, "v_head_dim", kMaxHeadDim);
  config->head_dim = config->qk_nope_head_dim + config->qk_rope_head_dim;
}

int positive_or_null(const JsonObject& root, const char* key) {
  const auto found = root.raw().find(key);
  return found != root.raw().end() && found->is_null() ? 1 : positive(root, key, kMaxExperts);
}

void read_routing(const JsonObject& root, RoutingConfig* routing) {
  routing->method = RoutingMethod::kDeepseekV3;
  routing->num_experts = positive(root, "n_routed_experts", kMaxExperts);
  routing->top_k = positive(root, "num_experts_per_tok", kMaxExperts);
  // A null means one group, a choice among all experts.
  routing->num_groups = positive_or_null(root, "n_group");
  routing->top_k_groups = positive_or_null(root, "topk_group");
  routing->normalize = root.boolean("norm_topk_prob");
  routing->scaling_factor =
      static_cast<float>(root.number("routed_scaling_factor", {.min = 1e-6, .max = 1e6}));
}

void check_routing(const JsonObject& root, const RoutingConfig& routing) {
  const int experts = routing.num_experts;
  const int groups = routing.num_groups;
  if (experts % groups != 0) {
    root.complain("n_group", fmt::format("expected a divisor of n_routed_experts {}, found {}",
                                         experts, groups));
    return;
  }
  const int group_size = experts / groups;
  if (groups > 1 && group_size < 2) {
    root.complain("n_group", fmt::format("expected groups of at least 2 of the {} experts (a group "
                                         "is judged by its best two), found {} groups",
                                         experts, groups));
  }
  if (routing.top_k_groups > groups) {
    root.complain("topk_group", fmt::format("expected at most n_group {}, found {}", groups,
                                            routing.top_k_groups));
  }
  const int eligible = routing.top_k_groups * group_size;
  if (routing.top_k > eligible) {
    root.complain("num_experts_per_tok",
                  fmt::format("expected at most {} (experts in topk_group {} groups), found {}",
                              eligible, routing.top_k_groups, routing.top_k));
  }
}

void read_layers(const JsonObject& root, ModelConfig* config) {
  const int64_t num_dense = std::min<int64_t>(
      root.integer("first_k_dense_replace", {.min = 0, .max = kMaxLayers}), config->num_layers);
  root.integer_or("moe_layer_freq", 1, {.min = 1, .max = 1});
  config->is_moe_layer.assign(config->num_layers, true);
  std::fill_n(config->is_moe_layer.begin(), num_dense, false);
  config->num_shared_experts = static_cast<int>(
      root.integer_or("n_shared_experts", 0, {.min = 0, .max = kMaxSharedExperts}));
  const formats::IntegerRange layers = {.min = 0, .max = kMaxLayers};
  const int64_t mtp = root.integer_or("num_mtp_layers", 0, layers);  // transformers' own name
  config->num_mtp_layers =
      static_cast<int>(root.integer_or("num_nextn_predict_layers", mtp, layers));
}

// Keys that repeat others: transformers writes some, and computes with the others.
void check_derived(const JsonObject& root, const ModelConfig& config) {
  const auto expect = [&](const char* key, const std::string& source, int64_t expected) {
    const int64_t found = root.integer_or(key, expected);
    if (found == expected) return;
    root.complain(key, fmt::format("expected {} {}, found {}", source, expected, found));
  };
  expect("head_dim", "qk_rope_head_dim", config.qk_rope_head_dim);
  expect("qk_head_dim", "qk_nope_head_dim + qk_rope_head_dim", config.head_dim);
  for (const char* key : {"num_local_experts", "num_experts"}) {
    expect(key, "n_routed_experts", config.routing.num_experts);
  }
}

}  // namespace

void read_deepseek_v3(const JsonObject& root, ModelConfig* config) {
  read_attention(root, config);
  read_layers(root, config);
  read_routing(root, &config->routing);
  require_word(root, "scoring_func", "sigmoid");
  require_word(root, "topk_method", "noaux_tc");
}

void check_deepseek_v3(const JsonObject& root, const ModelConfig& config) {
  check_even(root, "qk_rope_head_dim", config.qk_rope_head_dim);
  if (config.num_kv_heads != config.num_heads) {
    root.complain("num_key_value_heads",
                  fmt::format("expected num_attention_heads {} (latent attention shares no heads), "
                              "found {}",
                              config.num_heads, config.num_kv_heads));
  }
  check_derived(root, config);
  check_routing(root, config.routing);
}

}  // namespace wideep::model
