// SPDX-License-Identifier: Apache-2.0
//
// OLMoE (arXiv:2409.02060): queries and keys are normalised over all heads, and may be clipped.
#include "model/families/family.h"

namespace wideep::model {

void read_olmoe(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config);
  GroupedQueryConfig& attention = config->grouped_query;
  attention.norm = GroupedQueryConfig::Norm::kAllHeads;
  read_attention_bias(root, false, true, config);
  if (root.has("clip_qkv")) attention.clip = read_scale(root, "clip_qkv", 1.0);
  config->rope = read_rope(root, *config, 1e4);
  require_full_attention(root, *config);

  read_experts(root, {.width = "intermediate_size", .num_experts = 64, .num_chosen = 8}, config);
  RoutingConfig& routing = config->routing;
  routing.normalize = root.boolean_or("norm_topk_prob", false);
  routing.method = routing.normalize ? RoutingMethod::kRenormalize : RoutingMethod::kDefault;
}

}  // namespace wideep::model
