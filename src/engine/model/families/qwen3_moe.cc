// SPDX-License-Identifier: Apache-2.0
//
// Qwen3-MoE (arXiv:2505.09388).
#include "model/families/family.h"

namespace wideep::model {
namespace {

// Either all layers slide or none; sliding_window has no effect without use_sliding_window.
void read_windows(const formats::JsonObject& root, ModelConfig* config) {
  const bool slides = root.boolean_or("use_sliding_window", false);
  const int window = read_window(root, 4096);
  for (LayerConfig& layer : config->layers) layer.window = slides ? window : 0;
}

}  // namespace

void read_qwen3_moe(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_flag(root, "mlp_bias", false);
  require_flag(root, "qkv_bias", false);
  require_flag(root, "use_qk_norm", true);
  read_windows(root, config);
  root.integer_or("shared_expert_intermediate_size", 0, {.min = 0, .max = 0});
  read_grouped_query(root, config);
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  config->grouped_query.qkv_bias = config->grouped_query.output_bias =
      root.boolean_or("attention_bias", false);
  config->rope = read_rope(root, *config);
  require_full_attention(root, *config);

  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  config->moe_intermediate_size = positive(root, "moe_intermediate_size", kMaxIntermediate);
  RoutingConfig& routing = config->routing;
  routing.num_experts = read_num_experts(root, 0);
  routing.top_k = positive(root, "num_experts_per_tok", kMaxExperts);
  routing.normalize = root.boolean("norm_topk_prob");
  routing.method = routing.normalize ? RoutingMethod::kRenormalize : RoutingMethod::kDefault;
  read_sparse_steps(root, config);
  check_top_k(root, "num_experts_per_tok", routing);
}

}  // namespace wideep::model
