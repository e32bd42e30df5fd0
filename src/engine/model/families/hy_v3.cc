// SPDX-License-Identifier: Apache-2.0
//
// Tencent Hy3: grouped queries with norms per head, and DeepSeek-V3's routing among all experts.
#include "model/families/family.h"

namespace wideep::model {
namespace {

void name_hy_v3(weights::TensorNames* names) {
  // As published, then as transformers keeps them.
  names->rename("mlp.gate.e_score_correction_bias", "mlp.expert_bias")
      .rename("mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias")
      .rename("mlp.gate", "mlp.router.gate")
      .rename("mlp.shared_experts", "mlp.shared_mlp")
      .rename("shared_head.norm", "final_layernorm");
}

}  // namespace

void read_hy_v3(const formats::JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_flag(root, "mlp_bias", false);
  for (const char* key : {"qk_norm", "route_norm", "norm_topk_prob"}) require_flag(root, key, true);
  read_grouped_query(root, config, {.kv_heads = 8, .head_dim = 128});
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  read_attention_bias(root, false, true, config);
  config->rope = read_rope(root, *config, 11'158'840.0);
  require_whole_rotary(root);
  require_full_attention(root, *config);

  constexpr DeepseekDefaults kDefaults = {.dense_layers = 1,
                                          .shared_experts = 1,
                                          .experts = 192,
                                          .top_k = 8,
                                          .groups = 1,
                                          .top_k_groups = 1,
                                          .normalize = true,
                                          .scaling_factor = 2.826,
                                          .experts_key = "num_experts",
                                          .shared_key = "num_shared_experts",
                                          .scaling_key = "router_scaling_factor"};
  read_deepseek_layers(root, kDefaults, config);
  read_dense_layers(root, config);
  read_deepseek_routing(root, kDefaults, config);
  root.boolean_or("enable_moe_fp32_combine", true);  // how bf16 rounds a sum
  name_hy_v3(&config->tensor_names);
}

}  // namespace wideep::model
