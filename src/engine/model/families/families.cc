// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "model/families/family.h"

namespace wideep::model {
namespace {

constexpr std::array kFamilies = {
    Family{"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe},
    Family{"mellum", "MellumForCausalLM", read_mellum, 1e-6},
    Family{"qwen2_moe", "Qwen2MoeForCausalLM", read_qwen2_moe, 1e-6},
    Family{"qwen3_next", "Qwen3NextForCausalLM", read_qwen3_next, 1e-6},
    Family{"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", read_qwen3_5_moe, 1e-6, true},
    Family{"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", read_qwen3_5_moe, 1e-6},
    Family{"deepseek_v2", "DeepseekV2ForCausalLM", read_deepseek_v2, 1e-6},
    Family{"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek_v3},
    Family{"deepseek_v32", "DeepseekV32ForCausalLM", read_deepseek_v32, 1e-6},
    Family{"deepseek_v4", "DeepseekV4ForCausalLM", read_deepseek_v4, 1e-6},
    Family{"kimi_k2", "DeepseekV3ForCausalLM", read_deepseek_v3},
    Family{"kimi_k25", "KimiK25ForConditionalGeneration", read_deepseek_v3},
    Family{"kimi_k25", "Kimi_K25ForConditionalGeneration", read_deepseek_v3, 0,
           true},  // transformers'
    Family{"kimi_linear",
           "KimiLinearForCausalLM",
           read_kimi_linear,
           1e-5,
           false,
           false,
           {},
           "model_max_length"},
    Family{"bailing_hybrid",
           "BailingHybridForCausalLM",
           read_bailing_hybrid,
           1e-6,
           false,
           false,
           {},
           "model_max_length"},  // transformers'
    Family{"bailing_hybrid",
           "BailingMoeV3ForCausalLM",
           read_bailing_hybrid,
           1e-6,
           false,
           false,
           {},
           "model_max_length"},
    Family{"gpt_oss", "GptOssForCausalLM", read_gpt_oss, 1e-5},
    Family{"glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe, 1e-5},
    Family{"glm4_moe_lite", "Glm4MoeLiteForCausalLM", read_glm4_moe_lite, 1e-5},
    Family{"afmoe", "AfmoeForCausalLM", read_afmoe, 1e-5},
    Family{"cohere2_moe", "Cohere2MoeForCausalLM", read_cohere2_moe, 1e-5, false, true},
    Family{"laguna", "LagunaForCausalLM", read_laguna, 1e-6},
    Family{"mimo_v2_flash", "MiMoV2FlashForCausalLM", read_mimo_v2_flash, 1e-5},
    Family{"step3p7", "Step3p7ForConditionalGeneration", read_step3p7, 1e-5, true},
    Family{"step3p5", "Step3p5ForCausalLM", read_step3p7, 1e-5},  // the text model in it
    Family{"glm_moe_dsa", "GlmMoeDsaForCausalLM", read_glm_moe_dsa, 1e-5},
    Family{"glm5_next", "Glm5NextForConditionalGeneration", read_glm5_next, 1e-5, true},
    Family{"glm5_next_text", "Glm5NextForCausalLM", read_glm5_next, 1e-5},  // the text model in it
    Family{"mistral4", "Mistral4ForCausalLM", read_mistral4, 1e-6},
    Family{"mistral3", "Mistral3ForConditionalGeneration", read_mistral4, 1e-6, true, false,
           "mistral4"},
    Family{"solar_open", "SolarOpenForCausalLM", read_solar_open, 1e-5},
    Family{"dots1", "Dots1ForCausalLM", read_dots1, 1e-6},
    Family{"exaone_moe", "ExaoneMoeForCausalLM", read_exaone_moe, 1e-5},
    Family{"exaone_moe", "ExaoneMoEForCausalLM", read_exaone_moe, 1e-5},  // as first published
    Family{"hy_v3", "HYV3ForCausalLM", read_hy_v3, 1e-5},
    Family{"minimax_m2", "MiniMaxM2ForCausalLM", read_minimax_m2, 1e-6},
    Family{"minimax_m3_vl", "MiniMaxM3SparseForConditionalGeneration", read_minimax_m3, 1e-6, true},
    Family{"minimax_m3_vl_text", "MiniMaxM3VLForCausalLM", read_minimax_m3, 1e-6},
    Family{"llama4", "Llama4ForConditionalGeneration", read_llama4, 1e-5},
    Family{"llama4_text", "Llama4ForCausalLM", read_llama4, 1e-5},
    Family{"gemma4", "Gemma4ForConditionalGeneration", read_gemma4, 1e-6, true, true},
    Family{"gemma4_text", "Gemma4ForCausalLM", read_gemma4, 1e-6, false, true},
    Family{"mixtral", "MixtralForCausalLM", read_mixtral, 1e-5},
    Family{"olmoe", "OlmoeForCausalLM", read_olmoe, 1e-5},
    Family{"granitemoe", "GraniteMoeForCausalLM", read_granitemoe, 1e-6},
    Family{"granitemoeshared", "GraniteMoeSharedForCausalLM", read_granitemoe, 1e-6},
    Family{"granitemoehybrid", "GraniteMoeHybridForCausalLM", read_granitemoehybrid, 1e-6},
    Family{"nemotron_h",
           "NemotronHForCausalLM",
           read_nemotron_h,
           1e-5,
           false,
           false,
           {},
           "max_position_embeddings",
           count_layer_letters},
    Family{"phimoe", "PhimoeForCausalLM", read_phimoe, 1e-5},
    Family{"phimoe", "PhiMoEForCausalLM", read_phimoe, 1e-5},  // as published
    Family{"dbrx",
           "DbrxForCausalLM",
           read_dbrx,
           1e-5,
           false,
           false,
           {},
           "max_seq_len",
           nullptr,
           "d_model",
           "n_heads",
           "n_layers"},
    Family{"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", read_ernie4_5_moe, 1e-5},
    Family{"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", read_hunyuan_v1_moe, 1e-5},
    Family{"lfm2_moe", "Lfm2MoeForCausalLM", read_lfm2_moe, 1e-5},
    // Dense:
    Family{"llama", "LlamaForCausalLM", read_llama, 1e-6},
    Family{"mistral", "MistralForCausalLM", read_mistral, 1e-6},
    Family{"qwen2", "Qwen2ForCausalLM", read_qwen2, 1e-6},
    Family{"qwen3", "Qwen3ForCausalLM", read_qwen3, 1e-6},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

}  // namespace wideep::model
