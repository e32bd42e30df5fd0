// SPDX-License-Identifier: Apache-2.0
//
// Readers of DeepSeek's keys, which GLM and Kimi have taken over.
//
// They differ from each other in defaults only (DeepseekDefaults). check_groups() holds here what
// the router relies on: groups of equal size, from which enough experts can be chosen.
#include <fmt/format.h>

#include <algorithm>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

int64_t integer_or_required(const JsonObject& root, std::string_view key, int64_t by_default,
                            formats::IntegerRange range) {
  return by_default > 0 ? root.integer_or(key, by_default, range) : root.integer(key, range);
}

int read_experts_key(const JsonObject& root, std::string_view key, int by_default) {
  return static_cast<int>(
      integer_or_required(root, key, by_default, {.min = 1, .max = kMaxExperts}));
}

// A null of DeepSeek-V3 (null_keys.cc) means one group, a choice among all experts.
int read_groups(const JsonObject& root, std::string_view key, int by_default) {
  return !root.has(key) && is_null(root, key) ? 1 : read_experts_key(root, key, by_default);
}

}  // namespace

void check_groups(const JsonObject& root, const RoutingConfig& routing,
                  std::string_view experts_key) {
  const int experts = routing.num_experts;
  const int groups = routing.num_groups;
  if (experts % groups != 0) {
    root.complain("n_group", fmt::format("expected a divisor of {} {}, found {}", experts_key,
                                         experts, groups));
    return;
  }
  const int group_size = experts / groups;
  const bool by_pairs = routing.method == RoutingMethod::kDeepseekV3 || routing.groups_by_pairs;
  if (by_pairs && groups > 1 && group_size < 2) {
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

void read_latent_sizes(const JsonObject& root, int least_rotary, ModelConfig* config) {
  config->num_kv_heads = static_cast<int>(
      root.integer_or("num_key_value_heads", config->num_heads, {.min = 1, .max = kMaxHeads}));
  config->q_lora_rank =
      static_cast<int>(root.integer_or("q_lora_rank", 0, {.min = 1, .max = kMaxHidden}));
  config->kv_lora_rank = positive(root, "kv_lora_rank", kMaxHidden);
  config->qk_nope_head_dim = positive(root, "qk_nope_head_dim", kMaxHeadDim);
  config->qk_rope_head_dim =
      static_cast<int>(root.integer("qk_rope_head_dim", {.min = least_rotary, .max = kMaxHeadDim}));
  config->v_head_dim = positive(root, "v_head_dim", kMaxHeadDim);
  config->head_dim = config->qk_nope_head_dim + config->qk_rope_head_dim;
  config->latent_bias = root.boolean_or("attention_bias", false);
  if (!readable(root)) return;
  check_even(root, "qk_rope_head_dim", config->qk_rope_head_dim);
  if (config->num_kv_heads != config->num_heads) {
    root.complain("num_key_value_heads",
                  fmt::format("expected num_attention_heads {} (latent attention shares no heads), "
                              "found {}",
                              config->num_heads, config->num_kv_heads));
  }
  expect_equal(root, "qk_head_dim", "qk_nope_head_dim + qk_rope_head_dim", config->head_dim);
}

void read_latent_attention(const JsonObject& root, ModelConfig* config, bool whole_head) {
  read_latent_sizes(root, 1, config);
  if (!readable(root)) return;
  expect_equal(root, "head_dim",
               whole_head ? "qk_nope_head_dim + qk_rope_head_dim" : "qk_rope_head_dim",
               whole_head ? config->head_dim : config->qk_rope_head_dim);
}

void read_deepseek_layers(const JsonObject& root, const DeepseekDefaults& defaults,
                          ModelConfig* config) {
  set_first_dense(root.integer_or("first_k_dense_replace", defaults.dense_layers,
                                  {.min = 0, .max = kMaxLayers}),
                  config);
  root.integer_or("moe_layer_freq", 1, {.min = 1, .max = 1});
  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  read_deepseek_experts(root, defaults, config);
}

void read_deepseek_experts(const JsonObject& root, const DeepseekDefaults& defaults,
                           ModelConfig* config) {
  config->moe_intermediate_size = positive(root, "moe_intermediate_size", kMaxIntermediate);
  const auto shared = root.integer_or(defaults.shared_key, defaults.shared_experts,
                                      {.min = 0, .max = kMaxSharedExperts});
  config->shared_intermediate_size = static_cast<int>(shared) * config->moe_intermediate_size;
  const formats::IntegerRange layers = {.min = 0, .max = kMaxLayers};
  // transformers' own name
  const int64_t mtp = root.integer_or("num_mtp_layers", defaults.mtp_layers, layers);
  config->num_mtp_layers =
      static_cast<int>(root.integer_or("num_nextn_predict_layers", mtp, layers));
  config->names_mtp_layers = true;
}

void read_deepseek_routing(const JsonObject& root, const DeepseekDefaults& defaults,
                           ModelConfig* config) {
  RoutingConfig& routing = config->routing;
  routing.method = defaults.softmax ? RoutingMethod::kDeepseekV2 : RoutingMethod::kDeepseekV3;
  routing.groups_by_pairs = true;
  routing.selection_bias = !defaults.softmax;
  routing.num_experts = defaults.experts_key == ExpertKeys().experts
                            ? read_num_experts(root, 1, defaults.experts)
                            : read_experts_key(root, defaults.experts_key, defaults.experts);
  routing.top_k = read_experts_key(root, "num_experts_per_tok", defaults.top_k);
  routing.num_groups = read_groups(root, "n_group", defaults.groups);
  routing.top_k_groups = read_groups(root, "topk_group", defaults.top_k_groups);
  constexpr std::string_view kNormalize = "norm_topk_prob";
  routing.normalize = defaults.normalize || is_null(root, kNormalize)
                          ? flag_or_null(root, kNormalize, defaults.normalize.value_or(true))
                          : root.boolean(kNormalize);
  constexpr formats::NumberRange kFactors = {.min = 1e-6, .max = 1e6};
  routing.scaling_factor = static_cast<float>(
      defaults.scaling_factor > 0
          ? root.number_or(defaults.scaling_key, defaults.scaling_factor, kFactors)
          : root.number(defaults.scaling_key, kFactors));
  // dots.llm1 says how it chooses, which implies the scores.
  if (defaults.softmax || root.string_or("scoring_func", "sigmoid") != "noaux_tc") {
    require_word(root, "scoring_func", defaults.softmax ? "softmax" : "sigmoid");
  }
  if (!defaults.softmax) require_word(root, "topk_method", "noaux_tc");
  if (!readable(root)) return;
  for (const char* key : {"num_local_experts", "num_experts"}) {
    expect_equal(root, key, defaults.experts_key, routing.num_experts);
  }
  check_groups(root, routing, defaults.experts_key);
}

void read_sparse_latent(const JsonObject& root, const DeepseekDefaults& defaults,
                        ModelConfig* config) {
  require_silu(root);
  require_flag(root, "mlp_bias", false);
  require_flag(root, "rope_interleave", true);
  read_latent_attention(root, config);
  read_deepseek_layers(root, defaults, config);
  read_dense_layers(root, config);
  read_deepseek_routing(root, defaults, config);
  config->rope = read_rope(root, *config, 1e4);
  config->rope.interleaved = true;
  require_layer_types(root, *config, "indexed_attention");
}

void read_indexer(const JsonObject& root, bool rotates_interleaved, ModelConfig* config) {
  IndexerConfig& indexer = config->indexer;
  indexer.num_heads = positive(root, "index_n_heads", kMaxHeads);
  indexer.head_dim = positive(root, "index_head_dim", kMaxHeadDim);
  // As many as there are positions choose all of them.
  indexer.top_k =
      std::min(positive(root, "index_topk", kMaxPositions), config->max_position_embeddings);
  indexer.rotates_interleaved = rotates_interleaved;
  if (!readable(root)) return;
  if (indexer.head_dim < config->qk_rope_head_dim) {
    root.complain("index_head_dim", fmt::format("expected at least qk_rope_head_dim {}, found {}",
                                                config->qk_rope_head_dim, indexer.head_dim));
  }
  if (config->q_lora_rank == 0) {
    root.complain("q_lora_rank", "missing; the indexer's queries are made from its latent");
  }
}

}  // namespace wideep::model
