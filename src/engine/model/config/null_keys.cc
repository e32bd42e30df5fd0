// SPDX-License-Identifier: Apache-2.0
//
// A table of the nulls that are known to be harmless, for some keys only in certain families.
// Others are errors, since whether transformers takes a null for its default depends on the class,
// and a wrong guess would compute another model.
#include "model/config/null_keys.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

namespace wideep::model {
namespace {

using formats::JsonObject;

// Keys whose null means what an absent key does, or what their reader takes it for. families: those
// of which it is known; none: all that read the key.
struct NullKey {
  std::string_view key;
  std::span<const std::string_view> families = {};
};

constexpr std::string_view kLatent[] = {"deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25"};
constexpr std::string_view kFlags[] = {"deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25",
                                       "mistral3",    "mistral4",    "dots1"};
constexpr std::string_view kInterleaved[] = {"deepseek_v3", "kimi_k2", "kimi_k25", "mistral3",
                                             "mistral4"};
constexpr std::string_view kAsManyHeads[] = {"deepseek_v2",      "deepseek_v3",    "kimi_k2",
                                             "kimi_k25",         "olmoe",          "granitemoe",
                                             "granitemoeshared", "hunyuan_v1_moe", "llama",
                                             "mistral",          "qwen2",          "qwen3",
                                             "mistral3",         "mistral4",       "dots1",
                                             "granitemoehybrid", "kimi_linear",    "bailing_hybrid",
                                             "nemotron_h"};
constexpr std::string_view kWholeHeads[] = {"deepseek_v2", "deepseek_v3", "kimi_k2",
                                            "kimi_k25",    "mixtral",     "hunyuan_v1_moe",
                                            "llama",       "mistral",     "kimi_linear"};
constexpr std::string_view kAfmoe[] = {"afmoe"};
constexpr std::string_view kMimo[] = {"mimo_v2_flash"};
constexpr std::string_view kStep[] = {"step3p7", "step3p5"};
constexpr std::string_view kV4[] = {"deepseek_v4"};
constexpr std::string_view kErnie[] = {"ernie4_5_moe"};
constexpr std::string_view kGemma[] = {"gemma4", "gemma4_text"};
constexpr std::string_view kWindows[] = {"mixtral", "qwen2_moe", "qwen3_moe", "minimax_m2",
                                         "mistral", "qwen2",     "qwen3",     "dots1",
                                         "mellum",  "nemotron_h"};
constexpr std::string_view kGlmNext[] = {"glm5_next", "glm5_next_text"};
constexpr std::string_view kNemotron[] = {"nemotron_h"};
constexpr std::string_view kCohere[] = {"cohere2_moe"};
constexpr std::string_view kPhi[] = {"phimoe"};

const NullKey kNullKeys[] = {
    {"architectures"},
    {"model_type"},
    {"dtype"},
    {"torch_dtype"},
    {"quantization_config"},
    {"text_config"},
    {"bos_token_id"},
    {"eos_token_id"},
    {"rope_scaling"},
    {"rope_parameters"},
    {"layer_types"},
    {"layers_block_type", kNemotron},
    {"moe_latent_size", kNemotron},
    {"mtp_layers_block_type", kNemotron},
    {"num_sliding_attention_heads"},
    {"query_pre_attn_scalar"},
    {"linear_lower_bound", kGlmNext},  // there is none
    {"swiglu_limits"},
    {"swiglu_limits_shared"},
    {"partial_rotary_factors"},
    {"moe_layers_enum"},
    {"attention_other_setting"},
    {"num_attention_heads_per_layer"},
    {"gating_types"},
    {"mlp_layer_types"},
    {"sparse_attention_config"},
    {"mlp_only_layers"},
    {"no_rope_layers"},
    {"moe_layers"},
    {"indexer_types"},
    {"index_topk_pattern"},
    {"clip_qkv"},
    {"attention_chunk_size"},
    {"q_lora_rank"},
    {"original_max_position_embeddings"},
    {"initial_context_length"},
    {"sliding_window", kWindows},
    {"final_logit_softcapping", kGemma},
    {"use_bidirectional_attention", kGemma},
    {"num_global_key_value_heads", kGemma},
    {"num_experts", kGemma},
    {"top_k_experts", kGemma},
    {"moe_intermediate_size", kGemma},
    {"num_key_value_heads", kAsManyHeads},
    {"head_dim", kWholeHeads},
    {"n_group", kLatent},
    {"topk_group", kLatent},
    {"norm_topk_prob", kFlags},
    {"rope_interleave", kInterleaved},
    {"use_bias", kErnie},
    {"position_embedding_type"},
    {"mup_enabled", kAfmoe},
    {"num_key_value_heads", kAfmoe},
    {"attention_value_scale", kMimo},
    {"routed_scaling_factor", kMimo},
    {"n_shared_experts", kMimo},
    {"sliding_window_size", kMimo},
    {"sliding_window", kStep},
    {"num_key_value_heads", kCohere},
    {"rms_norm_eps", kCohere},
    {"prefix_dense_intermediate_size", kCohere},
    {"sliding_window", kPhi},
    {"partial_rotary_factor", kV4},
    {"qk_rope_head_dim", kV4},
    {"compress_rates"},
    {"compress_rate_csa"},
    {"compress_rate_hca"},
    {"compress_ratios"},
    {"num_hash_layers"},
    // Layers that predict further tokens: none.
    {"num_nextn_predict_layers"},
    {"num_mtp_layers"},
    {"num_mtp_modules"},
    {"use_mtp"},
    {"mtp_num_hidden_layers"},
    {"mtp_layer_types"},
    {"mtp_mlp_layer_types"},
    {"mtp_transformer_layers"},
    {"mtp_use_dedicated_embeddings"},
    // Not keys of the configuration classes: nothing reads them there.
    {"moe_layer_freq"},
    {"scoring_func"},
    {"mamba_ssm_dtype"},
    {"output_gate_type"},
    {"experts_per_token"},
    {"attention_head_dim"},
    {"qk_head_dim"},
    {"use_cla"},
    {"use_mla"},
    {"mla_use_nope"},
    {"mhc"},
    {"moe_router_activation_func"},
    {"use_grouped_topk"},
    {"no_kda_lora"},
    {"gated_attention_proj_granularity_type"},
    {"moe_shared_expert_intermediate_size"},
    {"expert_swiglu_limit_list"},
    {"share_expert_swiglu_limit_list"},
    {"score_function"},
    {"qk_norm_type"},
    {"scale_fmt"},
};

// The same number under two names: one of them is enough.
bool has_other_name(const JsonObject& text, std::string_view key) {
  constexpr std::string_view kExperts[] = {"num_experts", "num_local_experts", "n_routed_experts",
                                           "moe_num_experts"};
  constexpr std::string_view kChosen[] = {"num_experts_per_tok", "moe_k", "moe_topk"};
  const auto has = [](const nlohmann::json& object, std::string_view name) {
    const auto found = object.find(name);
    return found != object.end() && !found->is_null();
  };
  const nlohmann::json& all = text.raw();
  const auto among = [&](const auto& names) {
    return std::ranges::find(names, key) != std::end(names) &&
           std::ranges::any_of(names, [&](std::string_view name) { return has(all, name); });
  };
  if (key == "rope_theta" && has(all, "rope_parameters")) {
    return has(all.at("rope_parameters"), key);
  }
  return among(kExperts) || among(kChosen);
}

bool is_known(std::string_view key, std::string_view model_type) {
  return std::ranges::any_of(kNullKeys, [&](const NullKey& known) {
    return known.key == key &&
           (known.families.empty() ||
            std::ranges::find(known.families, model_type) != known.families.end());
  });
}

}  // namespace

void check_nulls(const JsonObject& text, std::string_view model_type) {
  for (const auto& [key, value] : text.raw().items()) {
    if (!value.is_null() || !text.was_asked(key) || is_known(key, model_type)) continue;
    if (has_other_name(text, key)) continue;
    return text.complain(key,
                         "null: expected a value, or no such key, which has a default; to other "
                         "readers a null is something else, or an error");
  }
}

}  // namespace wideep::model
