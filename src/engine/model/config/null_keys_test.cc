// SPDX-License-Identifier: Apache-2.0
//
// Nulls against absent keys. What transformers makes of a null was asked of it: for each key of
// each configuration class of 5.24, whether it is an error, and what the value is.
#include "model/config/null_keys.h"

#include <gmock/gmock.h>

#include "model/config/config_testing.h"

namespace wideep::model {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Keys whose null the configuration class refuses (as of another type), by family.
struct Refused {
  const char* family;
  std::vector<const char*> keys;
};

const std::vector<Refused>& refused_by_transformers() {
  static const std::vector<Refused> all = {
      {"qwen2_moe",
       {"tie_word_embeddings", "use_sliding_window", "max_window_layers", "decoder_sparse_step",
        "num_experts_per_tok", "num_experts", "norm_topk_prob", "qkv_bias"}},
      {"qwen3_next",
       {"num_key_value_heads", "tie_word_embeddings", "attention_bias", "head_dim",
        "linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim",
        "linear_num_key_heads", "linear_num_value_heads", "decoder_sparse_step",
        "num_experts_per_tok", "num_experts", "norm_topk_prob"}},
      {"qwen3_5_moe_text",
       {"num_key_value_heads", "tie_word_embeddings", "attention_bias", "head_dim",
        "linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim",
        "linear_num_key_heads", "linear_num_value_heads", "num_experts_per_tok", "num_experts"}},
      {"deepseek_v2",
       {"tie_word_embeddings", "attention_bias", "mlp_bias", "first_k_dense_replace",
        "n_routed_experts", "n_shared_experts", "routed_scaling_factor"}},
      {"deepseek_v32",
       {"n_shared_experts", "n_routed_experts", "routed_scaling_factor", "n_group", "topk_group",
        "num_experts_per_tok", "norm_topk_prob", "tie_word_embeddings", "attention_bias",
        "mlp_bias", "head_dim", "first_k_dense_replace", "num_key_value_heads"}},
      {"deepseek_v4",
       {"tie_word_embeddings",
        "attention_bias",
        "mlp_bias",
        "head_dim",
        "q_lora_rank",
        "o_groups",
        "o_lora_rank",
        "index_n_heads",
        "index_head_dim",
        "index_topk",
        "sliding_window",
        "hc_mult",
        "hc_sinkhorn_iters",
        "hc_eps",
        "swiglu_limit",
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "norm_topk_prob",
        "routed_scaling_factor",
        "num_key_value_heads",
        "n_shared_experts"}},
      {"glm4_moe",
       {"num_key_value_heads", "tie_word_embeddings", "attention_bias", "num_experts_per_tok",
        "n_shared_experts", "n_routed_experts", "routed_scaling_factor", "n_group", "topk_group",
        "first_k_dense_replace", "norm_topk_prob", "use_qk_norm"}},
      {"glm4_moe_lite",
       {"num_key_value_heads", "n_shared_experts", "n_routed_experts", "routed_scaling_factor",
        "n_group", "topk_group", "num_experts_per_tok", "norm_topk_prob", "tie_word_embeddings",
        "rope_interleave", "attention_bias"}},
      {"glm_moe_dsa",
       {"n_shared_experts", "n_routed_experts", "routed_scaling_factor", "n_group", "topk_group",
        "num_experts_per_tok", "norm_topk_prob", "tie_word_embeddings", "attention_bias",
        "mlp_bias", "head_dim", "first_k_dense_replace"}},
      {"mistral4",
       {"n_shared_experts", "n_routed_experts", "routed_scaling_factor", "tie_word_embeddings",
        "attention_bias", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"}},
      {"afmoe", {"tie_word_embeddings", "attention_bias", "global_attn_every_n_layers"}},
      {"cohere2_moe",
       {"head_dim", "tie_word_embeddings", "attention_bias", "logit_scale", "layer_norm_eps",
        "num_experts_per_tok", "num_experts", "num_shared_experts", "expert_selection_fn",
        "shared_expert_combination_strategy", "norm_topk_prob", "sliding_window_pattern",
        "prefix_dense_sliding_window_pattern"}},
      {"phimoe",
       {"num_key_value_heads", "tie_word_embeddings", "attention_bias", "lm_head_bias",
        "num_experts_per_tok", "num_local_experts", "router_jitter_noise"}},
      {"gpt_oss",
       {"num_local_experts", "head_dim", "num_key_value_heads", "tie_word_embeddings",
        "num_experts_per_tok", "swiglu_alpha", "swiglu_limit", "attention_bias"}},
      {"mellum",
       {"num_key_value_heads", "tie_word_embeddings", "attention_bias", "num_experts_per_tok",
        "num_experts", "norm_topk_prob", "head_dim"}},
      {"mimo_v2_flash",
       {"tie_word_embeddings", "attention_bias", "num_experts_per_tok", "n_routed_experts",
        "n_group", "topk_group", "norm_topk_prob", "head_dim", "v_head_dim", "sliding_window"}},
      {"minimax_m2",
       {"num_key_value_heads", "head_dim", "tie_word_embeddings", "num_experts_per_tok",
        "num_local_experts"}},
      {"minimax_m3_vl_text",
       {"num_key_value_heads", "head_dim", "tie_word_embeddings", "num_experts_per_tok",
        "num_local_experts", "rotary_dim", "dense_intermediate_size", "shared_intermediate_size",
        "routed_scaling_factor", "swiglu_alpha", "swiglu_limit", "index_n_heads", "index_head_dim",
        "index_block_size", "index_topk_blocks", "index_local_blocks", "hidden_act"}},
      {"laguna",
       {"num_key_value_heads", "tie_word_embeddings", "sliding_window",
        "shared_expert_intermediate_size", "num_experts_per_tok", "num_experts", "head_dim",
        "attention_bias", "gating", "moe_routed_scaling_factor", "moe_apply_router_weight_on_input",
        "moe_router_logit_softcapping"}},
      {"llama4_text",
       {"intermediate_size_mlp", "num_key_value_heads", "head_dim", "tie_word_embeddings",
        "num_experts_per_tok", "num_local_experts", "interleave_moe_layer_step", "use_qk_norm",
        "no_rope_layer_interval", "attn_temperature_tuning", "floor_scale", "attn_scale",
        "attention_bias"}},
      {"mixtral",
       {"num_key_value_heads", "tie_word_embeddings", "num_experts_per_tok", "num_local_experts"}},
      {"olmoe",
       {"tie_word_embeddings", "attention_bias", "num_experts_per_tok", "num_experts",
        "norm_topk_prob"}},
      {"granitemoe", {"tie_word_embeddings", "attention_bias"}},
      {"granitemoeshared", {"tie_word_embeddings", "attention_bias", "shared_intermediate_size"}},
      {"granitemoehybrid", {"tie_word_embeddings", "attention_bias", "shared_intermediate_size"}},
      {"nemotron_h",
       {"tie_word_embeddings",
        "attention_bias",
        "head_dim",
        "intermediate_size",
        "mlp_hidden_act",
        "mlp_bias",
        "mamba_num_heads",
        "mamba_head_dim",
        "ssm_state_size",
        "n_groups",
        "conv_kernel",
        "use_conv_bias",
        "use_bias",
        "mamba_hidden_act",
        "time_step_min",
        "time_step_limit",
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "n_shared_experts",
        "n_group",
        "topk_group",
        "norm_topk_prob",
        "routed_scaling_factor",
        "layer_norm_epsilon",
        "hybrid_override_pattern"}},
      {"ernie4_5_moe", {"tie_word_embeddings"}},
      {"step3p5",
       {"num_key_value_heads", "head_dim", "tie_word_embeddings", "num_experts_per_tok",
        "n_routed_experts", "share_expert_dim", "attention_bias", "moe_router_scaling_factor",
        "mlp_bias"}},
      {"hunyuan_v1_moe", {"tie_word_embeddings", "attention_bias", "moe_topk"}},
      {"dots1", {"tie_word_embeddings", "attention_bias", "routed_scaling_factor"}},
      {"exaone_moe",
       {"num_key_value_heads", "tie_word_embeddings", "sliding_window", "first_k_dense_replace",
        "num_experts", "num_experts_per_tok", "num_shared_experts", "norm_topk_prob",
        "routed_scaling_factor", "n_group", "topk_group", "sliding_window_pattern"}},
      {"hy_v3",
       {"num_key_value_heads", "head_dim", "tie_word_embeddings", "attention_bias", "mlp_bias",
        "router_scaling_factor", "enable_moe_fp32_combine"}},
      {"solar_open",
       {"num_key_value_heads", "head_dim", "tie_word_embeddings", "attention_bias",
        "num_experts_per_tok", "n_shared_experts", "n_routed_experts", "routed_scaling_factor",
        "n_group", "topk_group", "norm_topk_prob"}},
      {"kimi_linear",
       {"tie_word_embeddings", "attention_bias", "n_shared_experts", "norm_topk_prob",
        "routed_scaling_factor", "first_k_dense_replace", "linear_attn_config", "linear_head_dim",
        "linear_num_heads", "linear_conv_kernel_dim", "n_group"}},
      {"bailing_hybrid",
       {"head_dim", "tie_word_embeddings", "attention_bias", "n_shared_experts", "n_group",
        "topk_group", "norm_topk_prob", "routed_scaling_factor", "first_k_dense_replace",
        "short_conv_kernel_size", "layer_group_size", "kda_safe_gate", "kda_lower_bound",
        "rope_theta"}},
      {"glm5_next",
       {"num_key_value_heads",
        "head_dim",
        "q_lora_rank",
        "tie_word_embeddings",
        "attention_bias",
        "n_shared_experts",
        "n_routed_experts",
        "num_experts_per_tok",
        "n_group",
        "topk_group",
        "norm_topk_prob",
        "routed_scaling_factor",
        "swiglu_limit",
        "hc_mult",
        "hc_eps",
        "hc_sinkhorn_iters",
        "index_kpool",
        "index_kpool_always_select_tail",
        "linear_head_dim",
        "linear_num_heads",
        "linear_conv_kernel_dim"}},
      {"lfm2_moe",
       {"tie_word_embeddings", "num_key_value_heads", "conv_bias", "conv_L_cache",
        "num_dense_layers", "num_experts_per_tok", "num_experts", "use_expert_bias",
        "routed_scaling_factor", "norm_topk_prob"}},
  };
  return all;
}

// Keys whose null the class takes, and with which its model then fails, or computes something that
// is not the default.
const std::vector<Refused>& refused_by_models() {
  static const std::vector<Refused> all = {
      {"qwen2_moe", {"num_key_value_heads"}},
      {"afmoe",
       {"num_dense_layers", "head_dim", "num_experts", "num_experts_per_tok", "num_shared_experts",
        "route_scale", "sliding_window"}},
      {"gpt_oss", {"sliding_window"}},
      {"granitemoe",
       {"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier",
        "num_local_experts", "num_experts_per_tok"}},
      {"granitemoehybrid",
       {"num_local_experts", "num_experts_per_tok", "mamba_n_heads", "mamba_n_groups",
        "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand", "mamba_conv_bias",
        "mamba_proj_bias", "time_step_limit"}},
      {"ernie4_5_moe",
       {"num_key_value_heads", "moe_k", "moe_num_experts", "moe_num_shared_experts",
        "moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval", "moe_norm_min"}},
      {"glm4_moe", {"head_dim", "partial_rotary_factor"}},
      {"mistral4",
       {"n_group", "topk_group", "num_experts_per_tok", "first_k_dense_replace", "v_head_dim"}},
      {"dots1",
       {"n_shared_experts", "n_routed_experts", "n_group", "topk_group", "num_experts_per_tok",
        "first_k_dense_replace", "max_window_layers", "head_dim"}},
      {"exaone_moe", {"head_dim"}},
      {"hy_v3", {"num_experts", "num_experts_per_tok", "num_shared_experts"}},
      {"gemma4_text",
       {"num_key_value_heads", "head_dim", "global_head_dim", "tie_word_embeddings",
        "attention_k_eq_v", "attention_bias", "sliding_window", "num_kv_shared_layers",
        "hidden_size_per_layer_input", "hidden_activation", "num_experts", "top_k_experts",
        "moe_intermediate_size", "per_layer_config"}},
      {"kimi_linear", {"num_shared_experts", "num_expert_group", "topk_group", "moe_renormalize"}},
      {"bailing_hybrid",
       {"num_shared_experts", "linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim"}},
  };
  return all;
}

TEST(NullKeys, WhatIsAnErrorOfTransformersIsRefused) {
  for (const auto* list : {&refused_by_transformers(), &refused_by_models()}) {
    for (const Refused& each : *list) {
      for (const std::string key : each.keys) {
        json config = small_json(each.family);
        config[key] = nullptr;
        EXPECT_THAT(complaint(config), HasSubstr(key)) << each.family << ": " << key;
      }
    }
  }
}

// Those that mean what absent keys do.
TEST(NullKeys, WhatIsTheDefaultIsRead) {
  const Refused all[] = {
      {"qwen2_moe", {"rope_scaling", "sliding_window", "mlp_only_layers", "layer_types"}},
      {"qwen3_next", {"rope_scaling", "mlp_only_layers", "layer_types"}},
      {"deepseek_v2",
       {"num_key_value_heads", "head_dim", "q_lora_rank", "n_group", "topk_group",
        "norm_topk_prob"}},
      {"deepseek_v32", {"mlp_layer_types", "layer_types", "rope_parameters"}},
      {"deepseek_v4",
       {"layer_types", "mlp_layer_types", "rope_parameters", "rope_scaling", "compress_rates",
        "partial_rotary_factor", "compress_ratios", "num_hash_layers", "qk_rope_head_dim",
        "compress_rate_csa"}},
      {"glm4_moe_lite", {"q_lora_rank", "mlp_layer_types"}},
      {"glm_moe_dsa", {"mlp_layer_types", "layer_types", "indexer_types"}},
      {"mistral4", {"num_key_value_heads", "q_lora_rank", "norm_topk_prob", "rope_interleave"}},
      {"gemma4_text",
       {"layer_types", "rope_parameters", "num_global_key_value_heads", "final_logit_softcapping",
        "use_bidirectional_attention"}},
      {"afmoe", {"num_key_value_heads", "rope_parameters", "layer_types", "mup_enabled"}},
      {"gpt_oss", {"layer_types"}},
      {"laguna",
       {"rope_parameters", "layer_types", "num_attention_heads_per_layer", "mlp_layer_types"}},
      {"llama4_text", {"moe_layers", "no_rope_layers", "layer_types", "attention_chunk_size"}},
      {"mellum",
       {"rope_parameters", "layer_types", "mlp_layer_types", "num_mtp_layers", "mtp_layer_types",
        "mtp_mlp_layer_types", "sliding_window"}},
      {"mimo_v2_flash",
       {"rope_parameters", "routed_scaling_factor", "layer_types", "mlp_layer_types",
        "attention_value_scale", "n_shared_experts"}},
      {"minimax_m3_vl_text",
       {"rope_parameters", "layer_types", "mlp_layer_types", "sparse_attention_config"}},
      {"mixtral", {"head_dim", "sliding_window", "rope_scaling"}},
      {"olmoe", {"num_key_value_heads", "clip_qkv"}},
      {"granitemoe", {"num_key_value_heads"}},
      {"granitemoehybrid", {"num_key_value_heads", "layer_types", "position_embedding_type"}},
      {"nemotron_h",
       {"num_key_value_heads", "sliding_window", "moe_latent_size", "mtp_layers_block_type"}},
      {"ernie4_5_moe", {"use_bias"}},
      {"hunyuan_v1_moe", {"num_key_value_heads", "head_dim"}},
      {"step3p5",
       {"rope_parameters", "layer_types", "sliding_window", "num_sliding_attention_heads",
        "query_pre_attn_scalar", "swiglu_limits", "swiglu_limits_shared"}},
      {"kimi_linear",
       {"num_key_value_heads", "head_dim", "q_lora_rank", "mlp_layer_types", "rope_scaling",
        "num_nextn_predict_layers", "mla_use_nope"}},
      {"bailing_hybrid", {"num_key_value_heads", "q_lora_rank", "layer_types", "rope_scaling"}},
      {"glm5_next",
       {"mlp_layer_types", "indexer_types", "index_topk_pattern", "linear_lower_bound",
        "mla_use_nope", "mhc", "num_nextn_predict_layers"}},
      {"lfm2_moe", {"rope_scaling"}},
      {"dots1", {"num_key_value_heads", "sliding_window", "norm_topk_prob", "layer_types"}},
      {"exaone_moe", {"layer_types", "mlp_layer_types"}},
      {"hy_v3", {"mlp_layer_types", "rope_parameters"}},
      {"cohere2_moe",
       {"num_key_value_heads", "layer_types", "mlp_layer_types", "rms_norm_eps", "rope_scaling",
        "prefix_dense_intermediate_size", "num_nextn_predict_layers"}},
      {"phimoe", {"sliding_window", "rope_parameters", "rope_scaling"}},
  };
  for (const Refused& each : all) {
    for (const std::string key : each.keys) {
      json config = small_json(each.family);
      config[key] = nullptr;
      for (const char* every : {"bos_token_id", "eos_token_id", "dtype", "quantization_config",
                                "pad_token_id", "some_key_of_nobody"}) {
        config[every] = nullptr;
      }
      EXPECT_EQ(complaint(config), "") << each.family << ": " << key;
    }
  }
}

TEST(NullKeys, FlagsOfDeepseekV3AreFalse) {
  json config = golden_json("deepseek_plain");
  config["rope_interleave"] = nullptr;
  config["norm_topk_prob"] = nullptr;
  const auto parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_FALSE(parsed->rope.interleaved);
  EXPECT_FALSE(parsed->routing.normalize);
  config.erase("rope_interleave");
  EXPECT_TRUE(parse(config)->rope.interleaved);
  for (const char* key : {"first_k_dense_replace", "n_shared_experts"}) {
    json other = golden_json("deepseek_groups");
    other[key] = nullptr;
    EXPECT_NE(complaint(other), "") << key;
  }
}

// Either of two names of the same number may be null.
TEST(NullKeys, OneOfTwoNamesIsEnough) {
  json config = golden_json("qwen3_gqa");
  config["num_local_experts"] = nullptr;
  EXPECT_EQ(complaint(config), "");
  config["num_experts"] = nullptr;
  EXPECT_NE(complaint(config), "");
}

TEST(NullKeys, OfRotaryParameters) {
  const auto with = [](const json& rope) {
    json config = small_json("mixtral");
    config["rope_parameters"] = rope;
    return config;
  };
  const json yarn = {{"rope_type", "yarn"},
                     {"rope_theta", 1e4},
                     {"factor", 2.0},
                     {"original_max_position_embeddings", 128}};
  const auto null_at = [&](const char* key) {
    json rope = yarn;
    rope[key] = nullptr;
    return with(rope);
  };
  for (const char* key :
       {"rope_type", "rope_theta", "original_max_position_embeddings", "partial_rotary_factor"}) {
    EXPECT_THAT(complaint(null_at(key)), HasSubstr(std::string("rope_parameters.") + key)) << key;
  }
  for (const char* key : {"attention_factor", "beta_fast", "beta_slow", "mscale", "factor"}) {
    EXPECT_EQ(complaint(null_at(key)), "") << key;
  }
  EXPECT_TRUE(parse(with(yarn))->rope.truncate);
  EXPECT_FALSE(parse(null_at("truncate"))->rope.truncate);
}

}  // namespace
}  // namespace wideep::model
