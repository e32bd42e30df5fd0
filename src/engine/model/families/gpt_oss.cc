// SPDX-License-Identifier: Apache-2.0
//
// GPT-OSS (https://openai.com/index/gpt-oss-model-card): sinks, windows in every second layer,
// biases of all products, clamped SwiGLU.
#include <cmath>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// Without rotary parameters, the published ones hold.
RopeConfig read_gpt_oss_rope(const JsonObject& root, const ModelConfig& config) {
  RopeConfig rope = read_rope(root, config, 150000);
  if (!root.has("rope_scaling") && !root.has("rope_parameters")) {
    rope.scaling = RopeConfig::Scaling::kYarn;
    rope.factor = 32;
    rope.attention_factor = 0.1 * std::log(rope.factor) + 1;
    rope.original_max_position_embeddings = 4096;
    rope.truncate = false;
  }
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    expect_equal(root, "initial_context_length", "original_max_position_embeddings",
                 rope.original_max_position_embeddings);
  }
  return rope;
}

}  // namespace

void read_gpt_oss(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config, {.kv_heads = 8, .head_dim = 64});
  read_attention_bias(root, true, true, config);
  config->grouped_query.sinks = true;
  config->rope = read_gpt_oss_rope(root, *config);
  const int window =
      static_cast<int>(root.integer_or("sliding_window", 128, {.min = 1, .max = kMaxPositions}));
  read_sliding_layers(root, window, [](int layer) { return layer % 2 == 0; }, config);

  read_experts(root, {.width = "intermediate_size", .num_experts = 128, .num_chosen = 4}, config);
  expect_equal(root, "experts_per_token", "num_experts_per_tok", config->routing.top_k);
  config->routing.method = RoutingMethod::kRenormalize;
  config->routing.logit_bias = true;
  config->expert_bias = true;
  kernels::Activation& activation = config->activation;
  activation.kind = kernels::Activation::Kind::kClampedSwiglu;
  activation.alpha = read_scale(root, "swiglu_alpha", 1.702);
  activation.limit = read_scale(root, "swiglu_limit", 7.0);
  config->tensor_names.rename("mlp.gate", "mlp.router")
      .fuse_experts("mlp.experts.gate_up_proj", "mlp.experts.down_proj",
                    weights::GateUp::kAlternating, true);
}

}  // namespace wideep::model
