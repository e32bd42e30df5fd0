// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "model/config_fields.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

void read_attention(const JsonObject& root, ModelConfig* config) {
  config->num_kv_heads = positive(root, "num_key_value_heads", kMaxHeads);
  const int by_default = std::max(1, config->hidden_size / config->num_heads);
  config->head_dim =
      static_cast<int>(root.integer_or("head_dim", by_default, {.min = 1, .max = kMaxHeadDim}));
}

constexpr formats::IntegerRange kExperts = {.min = 0, .max = kMaxExperts};

// Published files have num_experts; transformers 5 writes num_local_experts.
int64_t read_num_experts(const JsonObject& root) {
  if (!root.has("num_local_experts")) return root.integer("num_experts", kExperts);
  const int64_t local = root.integer("num_local_experts", kExperts);
  const int64_t experts = root.integer_or("num_experts", local, kExperts);
  if (experts != local) {
    root.complain("num_experts",
                  fmt::format("expected num_local_experts {}, found {}", local, experts));
  }
  return local;
}

void read_routing(const JsonObject& root, RoutingConfig* routing) {
  routing->normalize = root.boolean("norm_topk_prob");
  routing->method = routing->normalize ? RoutingMethod::kRenormalize : RoutingMethod::kDefault;
  routing->num_experts = static_cast<int>(read_num_experts(root));
  routing->top_k = positive(root, "num_experts_per_tok", kMaxExperts);
}

// Layer i is a MoE layer if there are experts, i + 1 is a multiple of decoder_sparse_step and
// mlp_only_layers does not contain i. Entries beyond the last layer have no effect.
void read_layers(const JsonObject& root, ModelConfig* config) {
  const int64_t step = root.integer_or("decoder_sparse_step", 1, {.min = 1, .max = kMaxLayers});
  RoutingConfig& routing = config->routing;
  config->is_moe_layer.resize(config->num_layers);
  for (int layer = 0; layer < config->num_layers; ++layer) {
    config->is_moe_layer[layer] = routing.num_experts > 0 && (layer + 1) % step == 0;
  }
  for (const int64_t layer : root.integers_or("mlp_only_layers", {})) {
    if (layer >= 0 && layer < config->num_layers) config->is_moe_layer[layer] = false;
  }
  // A model of dense layers only: one expert that no layer has keeps all sizes positive.
  if (routing.num_experts == 0) routing.num_experts = routing.top_k = 1;
}

}  // namespace

void read_qwen3_moe(const JsonObject& root, ModelConfig* config) {
  read_attention(root, config);
  read_routing(root, &config->routing);
  read_layers(root, config);
  require_flag(root, "use_qk_norm", true);
  root.integer_or("shared_expert_intermediate_size", 0, {.min = 0, .max = 0});
}

void check_qwen3_moe(const JsonObject& root, const ModelConfig& config) {
  check_even(root, "head_dim", config.head_dim);
  if (config.num_heads % config.num_kv_heads != 0) {
    root.complain("num_key_value_heads",
                  fmt::format("expected a divisor of num_attention_heads {}, found {}",
                              config.num_heads, config.num_kv_heads));
  }
  if (config.routing.top_k > config.routing.num_experts) {
    root.complain("num_experts_per_tok",
                  fmt::format("expected at most num_experts {}, found {}",
                              config.routing.num_experts, config.routing.top_k));
  }
}

}  // namespace wideep::model
