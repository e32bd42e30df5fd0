// SPDX-License-Identifier: Apache-2.0
//
// What public programs say of the config.json of published models whose files are not at hand: their
// tests and settings hold these keys and values. Where they hold only a part of a file, what a test
// expects is said by that part.
#include <gmock/gmock.h>

#include <algorithm>

#include "model/config/config.h"
#include "model/config/config_testing.h"

namespace wideep::model {
namespace {

using nlohmann::json;

ModelConfig read(const json& config) {
  const Result<ModelConfig> parsed = parse(config);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  if (!parsed.ok()) return {};
  EXPECT_THAT(parsed->notes, testing::IsEmpty());
  return *parsed;
}

// "fsss" and so on, for each of these layers.
json words(std::string_view period, int layers) {
  json list = json::array();
  for (int i = 0; i < layers; ++i) {
    const char kind = period[static_cast<size_t>(i) % period.size()];
    list.push_back(kind == 'f' ? "full_attention" : "sliding_attention");
  }
  return list;
}

int num_windows(const ModelConfig& config) {
  return static_cast<int>(std::ranges::count_if(
      config.layers, [](const LayerConfig& layer) { return layer.window > 0; }));
}

// arcee-ai/Trinity-Nano-Preview, and Trinity-Mini, which differs in sizes: tests of NVIDIA's
// TensorRT-LLM and of AWS's neuronx-distributed-inference.
TEST(PublishedFacts, Trinity) {
  json nano = {{"architectures", {"AfmoeForCausalLM"}},
               {"attention_dropout", 0.0},
               {"dtype", "bfloat16"},
               {"global_attn_every_n_layers", 4},
               {"head_dim", 128},
               {"hidden_act", "silu"},
               {"hidden_size", 1024},
               {"initializer_range", 0.02},
               {"intermediate_size", 3072},
               {"max_position_embeddings", 131072},
               {"model_type", "afmoe"},
               {"moe_intermediate_size", 256},
               {"mup_enabled", true},
               {"n_group", 1},
               {"num_attention_heads", 8},
               {"num_dense_layers", 2},
               {"num_expert_groups", 1},
               {"num_experts", 128},
               {"num_experts_per_tok", 8},
               {"num_hidden_layers", 56},
               {"num_key_value_heads", 2},
               {"num_limited_groups", 1},
               {"num_shared_experts", 1},
               {"rms_norm_eps", 1e-5},
               {"rope_scaling", nullptr},
               {"rope_theta", 10000},
               {"route_norm", true},
               {"route_scale", 2.826},
               {"score_func", "sigmoid"},
               {"sliding_window", 2048},
               {"tie_word_embeddings", false},
               {"topk_group", 1},
               {"transformers_version", "4.57.3"},
               {"use_cache", true},
               {"use_grouped_mm", true},
               {"vocab_size", 200192}};
  const ModelConfig small = read(nano);
  EXPECT_EQ(small.num_moe_layers(), 54);
  EXPECT_EQ(num_windows(small), 42);
  EXPECT_EQ(small.embedding_scale, 32.0f);
  nano.update({{"hidden_size", 2048},
               {"intermediate_size", 6144},
               {"layer_types", words("sssf", 32)},
               {"moe_intermediate_size", 1024},
               {"num_attention_heads", 32},
               {"num_hidden_layers", 32},
               {"num_key_value_heads", 4}});
  const ModelConfig mini = read(nano);
  EXPECT_EQ(mini.num_moe_layers(), 30);
  EXPECT_EQ(num_windows(mini), 24);
  EXPECT_EQ(mini.routing.scaling_factor, 2.826f);
}

// XiaomiMiMo/MiMo-V2-Flash: tests of a Rust server and of NVIDIA's Megatron Bridge.
TEST(PublishedFacts, MimoV2Flash) {
  json pattern = json::array(), experts = json::array();
  for (int layer = 0; layer < 48; ++layer) {
    pattern.push_back(layer == 0 || (layer + 1) % 6 == 0 ? 0 : 1);
    experts.push_back(layer == 0 ? 0 : 1);
  }
  const ModelConfig config = read({{"architectures", {"MiMoV2FlashForCausalLM"}},
                                   {"add_full_attention_sink_bias", false},
                                   {"add_swa_attention_sink_bias", true},
                                   {"attention_bias", false},
                                   {"attention_chunk_size", 128},
                                   {"attention_dropout", 0.0},
                                   {"attention_value_scale", 0.707},
                                   {"head_dim", 192},
                                   {"hidden_act", "silu"},
                                   {"hidden_size", 4096},
                                   {"hybrid_layer_pattern", pattern},
                                   {"initializer_range", 0.02},
                                   {"intermediate_size", 16384},
                                   {"layernorm_epsilon", 1e-5},
                                   {"max_position_embeddings", 262144},
                                   {"model_type", "mimo_v2_flash"},
                                   {"moe_intermediate_size", 2048},
                                   {"moe_layer_freq", experts},
                                   {"n_group", 1},
                                   {"n_routed_experts", 256},
                                   {"n_shared_experts", nullptr},
                                   {"norm_topk_prob", true},
                                   {"num_attention_heads", 64},
                                   {"num_experts_per_tok", 8},
                                   {"num_hidden_layers", 48},
                                   {"num_key_value_heads", 4},
                                   {"partial_rotary_factor", 0.334},
                                   {"rope_theta", 5000000},
                                   {"routed_scaling_factor", nullptr},
                                   {"scoring_func", "sigmoid"},
                                   {"sliding_window", 128},
                                   {"sliding_window_size", 128},
                                   {"swa_head_dim", 192},
                                   {"swa_num_attention_heads", 64},
                                   {"swa_num_key_value_heads", 8},
                                   {"swa_rope_theta", 10000},
                                   {"swa_v_head_dim", 128},
                                   {"tie_word_embeddings", false},
                                   {"topk_group", 1},
                                   {"topk_method", "noaux_tc"},
                                   {"torch_dtype", "bfloat16"},
                                   {"use_cache", true},
                                   {"v_head_dim", 128},
                                   {"vocab_size", 152576}});
  EXPECT_EQ(config.num_moe_layers(), 47);
  EXPECT_EQ(num_windows(config), 39);
  EXPECT_EQ(config.layers[1].window, 129);
  EXPECT_EQ(config.attention_of(1).num_kv_heads, 8);
  EXPECT_EQ(config.attention_of(1).options.rotary_dim, 64);
}

// poolside/Laguna-XS.2: a test of an adapter for MLX, without the rotation.
TEST(PublishedFacts, LagunaXs) {
  json heads = json::array(), mlps = json::array();
  for (int layer = 0; layer < 40; ++layer) {
    heads.push_back(layer % 4 == 0 ? 48 : 64);
    mlps.push_back(layer == 0 ? "dense" : "sparse");
  }
  const ModelConfig config = read({{"architectures", {"LagunaForCausalLM"}},
                                   {"gating", "per-head"},
                                   {"head_dim", 128},
                                   {"hidden_size", 2048},
                                   {"intermediate_size", 8192},
                                   {"layer_types", words("fsss", 40)},
                                   {"max_position_embeddings", 262144},
                                   {"mlp_layer_types", mlps},
                                   {"model_type", "laguna"},
                                   {"moe_intermediate_size", 512},
                                   {"moe_routed_scaling_factor", 2.5},
                                   {"norm_topk_prob", true},
                                   {"num_attention_heads", 48},
                                   {"num_attention_heads_per_layer", heads},
                                   {"num_experts", 256},
                                   {"num_experts_per_tok", 8},
                                   {"num_hidden_layers", 40},
                                   {"num_key_value_heads", 8},
                                   {"shared_expert_intermediate_size", 512},
                                   {"sliding_window", 512},
                                   {"tie_word_embeddings", false},
                                   {"vocab_size", 100352}});
  EXPECT_EQ(config.num_moe_layers(), 39);
  EXPECT_EQ(num_windows(config), 30);
  EXPECT_EQ(config.attention_of(0).num_heads, 48);
  EXPECT_EQ(config.attention_of(1).num_heads, 64);
}

// inclusionAI/Ling-3.0-flash: a test of a server for Vulkan.
TEST(PublishedFacts, LingFlash) {
  const ModelConfig config = read({{"architectures", {"BailingMoeV3ForCausalLM"}},
                                   {"first_k_dense_replace", 2},
                                   {"gated_attention_proj_granularity_type", "head_wise"},
                                   {"head_dim", 128},
                                   {"hidden_size", 2560},
                                   {"intermediate_size", 6144},
                                   {"kda_lower_bound", -5.0},
                                   {"kda_safe_gate", true},
                                   {"kv_lora_rank", 512},
                                   {"layer_group_size", 6},
                                   {"max_position_embeddings", 131072},
                                   {"model_type", "bailing_hybrid"},
                                   {"moe_intermediate_size", 768},
                                   {"moe_shared_expert_intermediate_size", 768},
                                   {"n_group", 8},
                                   {"no_kda_lora", true},
                                   {"norm_topk_prob", true},
                                   {"num_attention_heads", 32},
                                   {"num_experts", 512},
                                   {"num_experts_per_tok", 8},
                                   {"num_hidden_layers", 42},
                                   {"num_key_value_heads", 32},
                                   {"num_shared_experts", 1},
                                   {"q_lora_rank", nullptr},
                                   {"qk_nope_head_dim", 128},
                                   {"qk_rope_head_dim", 64},
                                   {"rms_norm_eps", 1e-6},
                                   {"rope_interleave", true},
                                   {"rope_theta", 6000000},
                                   {"rotary_dim", 64},
                                   {"routed_scaling_factor", 2.5},
                                   {"short_conv_kernel_size", 4},
                                   {"tie_word_embeddings", false},
                                   {"topk_group", 4},
                                   {"v_head_dim", 128},
                                   {"vocab_size", 157184}});
  EXPECT_EQ(config.num_moe_layers(), 40);
  EXPECT_EQ(config.layers[4].mixer, LayerConfig::Mixer::kKimiDelta);
  EXPECT_EQ(config.layers[5].mixer, LayerConfig::Mixer::kAttention);
  EXPECT_EQ(config.kimi_delta.decay_bound, -5.0f);
  EXPECT_EQ(config.num_mtp_layers, 1);
  EXPECT_TRUE(config.names_mtp_layers);
}

// moonshotai/Kimi-Linear-48B-A3B: tests of two programs that convert it.
TEST(PublishedFacts, KimiLinear) {
  const std::vector<int> full = {4, 8, 12, 16, 20, 24, 27};
  json delta = json::array();
  for (int layer = 1; layer <= 27; ++layer) {
    if (!std::ranges::binary_search(full, layer)) delta.push_back(layer);
  }
  const ModelConfig config = read({{"architectures", {"KimiLinearForCausalLM"}},
                                   {"first_k_dense_replace", 1},
                                   {"head_dim", 72},
                                   {"hidden_act", "silu"},
                                   {"hidden_size", 2304},
                                   {"intermediate_size", 9216},
                                   {"kv_lora_rank", 512},
                                   {"linear_attn_config",
                                    {{"full_attn_layers", full},
                                     {"head_dim", 128},
                                     {"kda_layers", delta},
                                     {"num_heads", 32},
                                     {"short_conv_kernel_size", 4}}},
                                   {"mla_use_nope", true},
                                   {"model_max_length", 1048576},
                                   {"model_type", "kimi_linear"},
                                   {"moe_intermediate_size", 1024},
                                   {"moe_layer_freq", 1},
                                   {"moe_renormalize", true},
                                   {"moe_router_activation_func", "sigmoid"},
                                   {"num_attention_heads", 32},
                                   {"num_expert_group", 1},
                                   {"num_experts", 256},
                                   {"num_experts_per_token", 8},
                                   {"num_hidden_layers", 27},
                                   {"num_key_value_heads", 32},
                                   {"num_shared_experts", 1},
                                   {"q_lora_rank", nullptr},
                                   {"qk_nope_head_dim", 128},
                                   {"qk_rope_head_dim", 64},
                                   {"rms_norm_eps", 1e-5},
                                   {"routed_scaling_factor", 2.446},
                                   {"tie_word_embeddings", false},
                                   {"topk_group", 1},
                                   {"v_head_dim", 128},
                                   {"vocab_size", 163840}});
  EXPECT_EQ(config.num_moe_layers(), 26);
  EXPECT_EQ(config.layers[26].mixer, LayerConfig::Mixer::kAttention);
  EXPECT_EQ(config.layers[25].mixer, LayerConfig::Mixer::kKimiDelta);
  EXPECT_EQ(config.routing.scaling_factor, 2.446f);
}

// LGAI-EXAONE/K-EXAONE-236B-A23B: a test of NVIDIA's TensorRT-LLM, with four of its 48 layers.
TEST(PublishedFacts, KExaone) {
  const ModelConfig config = read({{"architectures", {"ExaoneMoEForCausalLM"}},
                                   {"attention_dropout", 0.0},
                                   {"bos_token_id", 1},
                                   {"dtype", "bfloat16"},
                                   {"eos_token_id", 53},
                                   {"first_last_k_dense_replace", 1},
                                   {"head_dim", 128},
                                   {"hidden_act", "silu"},
                                   {"hidden_size", 6144},
                                   {"initializer_range", 0.02},
                                   {"intermediate_size", 18432},
                                   {"is_moe_layer", {false, true, true, true}},
                                   {"layer_types", words("sssf", 4)},
                                   {"max_position_embeddings", 262144},
                                   {"model_type", "exaone_moe"},
                                   {"moe_intermediate_size", 2048},
                                   {"n_group", 1},
                                   {"norm_topk_prob", true},
                                   {"num_attention_heads", 64},
                                   {"num_experts", 128},
                                   {"num_experts_per_tok", 8},
                                   {"num_hidden_layers", 4},
                                   {"num_key_value_heads", 8},
                                   {"num_shared_experts", 1},
                                   {"pad_token_id", 0},
                                   {"rms_norm_eps", 1e-5},
                                   {"rope_scaling", nullptr},
                                   {"rope_theta", 1000000},
                                   {"routed_scaling_factor", 2.5},
                                   {"scoring_func", "sigmoid"},
                                   {"sliding_window", 128},
                                   {"sliding_window_pattern", "LLLG"},
                                   {"tie_word_embeddings", false},
                                   {"tokenizer_class", "GPT2Tokenizer"},
                                   {"topk_group", 1},
                                   {"topk_method", "noaux_tc"},
                                   {"transformers_version", "5.0.0.dev0"},
                                   {"use_cache", true},
                                   {"vocab_size", 153600}});
  EXPECT_EQ(config.num_moe_layers(), 3);
  EXPECT_EQ(num_windows(config), 3);
  EXPECT_FALSE(config.layers[3].rotates);
  EXPECT_EQ(config.rope.theta, 1e6);
}

}  // namespace
}  // namespace wideep::model
