// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "base/scratch_directory.h"
#include "model/config_testing.h"

namespace wideep::model {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig read_golden(const std::string& model) {
  Result<ModelConfig> config = read_model_config(golden_dir(model));
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig{};
}

TEST(ModelConfig, DeepseekPlain) {
  const ModelConfig config = read_golden("deepseek_plain");
  EXPECT_EQ(config.architecture, Architecture::kDeepseekV3);
  EXPECT_TRUE(config.is_mla());
  EXPECT_EQ(config.q_lora_rank, 0);
  EXPECT_EQ(config.kv_lora_rank, 16);
  EXPECT_EQ(config.num_shared_experts, 0);
  EXPECT_THAT(config.is_moe_layer, ElementsAre(true, true));
  EXPECT_EQ(config.num_moe_layers(), 2);
  EXPECT_EQ(config.bos_token_id, 0);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(1));
}

TEST(ModelConfig, DeepseekGroups) {
  const ModelConfig config = read_golden("deepseek_groups");
  EXPECT_EQ(config.q_lora_rank, 24);
  EXPECT_EQ(config.num_shared_experts, 1);
  EXPECT_THAT(config.is_moe_layer, ElementsAre(false, true, true));
  EXPECT_EQ(config.routing.method, RoutingMethod::kDeepseekV3);
  EXPECT_EQ(config.routing.num_experts, 16);
  EXPECT_EQ(config.routing.top_k, 4);
  EXPECT_EQ(config.routing.num_groups, 4);
  EXPECT_EQ(config.routing.top_k_groups, 2);
  EXPECT_TRUE(config.routing.normalize);
}

TEST(ModelConfig, DeepseekOdd) {
  const ModelConfig config = read_golden("deepseek_odd");
  EXPECT_EQ(config.vocab_size, 97);
  EXPECT_EQ(config.hidden_size, 44);
  EXPECT_EQ(config.dense_intermediate_size, 52);
  EXPECT_EQ(config.moe_intermediate_size, 20);
  EXPECT_EQ(config.num_heads, 3);
  EXPECT_EQ(config.qk_nope_head_dim, 20);
  EXPECT_EQ(config.qk_rope_head_dim, 12);
  EXPECT_EQ(config.v_head_dim, 14);
  EXPECT_EQ(config.max_position_embeddings, 96);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-3f);
  EXPECT_FLOAT_EQ(config.latent_norm_eps, 1e-6f);
  EXPECT_FALSE(config.routing.normalize);
  EXPECT_FLOAT_EQ(config.routing.scaling_factor, 2.5f);
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(ModelConfig, Qwen3) {
  const ModelConfig gqa = read_golden("qwen3_gqa");
  EXPECT_EQ(gqa.architecture, Architecture::kQwen3Moe);
  EXPECT_FALSE(gqa.is_mla());
  EXPECT_EQ(gqa.num_heads, 4);
  EXPECT_EQ(gqa.num_kv_heads, 2);
  EXPECT_EQ(gqa.head_dim, 16);
  EXPECT_EQ(gqa.routing.method, RoutingMethod::kRenormalize);
  EXPECT_THAT(gqa.is_moe_layer, ElementsAre(true, true, true));
  EXPECT_EQ(gqa.num_shared_experts, 0);

  const ModelConfig mqa = read_golden("qwen3_mqa");
  EXPECT_EQ(mqa.num_kv_heads, 1);
  EXPECT_EQ(mqa.routing.method, RoutingMethod::kDefault);
  EXPECT_TRUE(mqa.tie_word_embeddings);
  EXPECT_THAT(mqa.is_moe_layer, ElementsAre(false, true, false, true));

  const ModelConfig yarn = read_golden("qwen3_yarn");
  EXPECT_EQ(yarn.head_dim, 20);
  EXPECT_EQ(yarn.routing.num_experts, 12);
  EXPECT_EQ(yarn.routing.top_k, 3);
  EXPECT_THAT(yarn.is_moe_layer, ElementsAre(false, true));
}

TEST(ModelConfig, DefaultsOfAbsentKeys) {
  json qwen3 = golden_json("qwen3_gqa");
  for (const char* key : {"head_dim", "mlp_only_layers", "decoder_sparse_step", "eos_token_id",
                          "bos_token_id", "tie_word_embeddings", "hidden_act", "dtype"}) {
    qwen3.erase(key);
  }
  const Result<ModelConfig> config = parse(qwen3);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->head_dim, 8);  // hidden_size / num_attention_heads
  EXPECT_EQ(config->num_moe_layers(), 3);
  EXPECT_EQ(config->bos_token_id, -1);
  EXPECT_TRUE(config->eos_token_ids.empty());
}

TEST(ModelConfig, ArchitectureFromModelTypeWhenNotListed) {
  json config = golden_json("qwen3_gqa");
  config.erase("architectures");
  ASSERT_TRUE(parse(config).ok());
  EXPECT_EQ(parse(config)->architecture, Architecture::kQwen3Moe);
  config["model_type"] = "mixtral";
  EXPECT_EQ(complaint(config),
            "config.json: model_type: mixtral is not supported; supported: DeepseekV3ForCausalLM, "
            "Qwen3MoeForCausalLM");
  config.erase("model_type");
  EXPECT_EQ(complaint(config),
            "config.json: architectures: missing; supported: DeepseekV3ForCausalLM, "
            "Qwen3MoeForCausalLM");
}

TEST(ModelConfig, ExpertsUnderEitherName) {
  json config = golden_json("qwen3_gqa");
  config.erase("num_experts");
  EXPECT_EQ(complaint(config), "");
  config["num_experts"] = 9;
  EXPECT_EQ(complaint(config), "config.json: num_experts: expected num_local_experts 8, found 9");
  config.erase("num_local_experts");
  ASSERT_TRUE(parse(config).ok());
  EXPECT_EQ(parse(config)->routing.num_experts, 9);
}

TEST(ModelConfig, EndTokens) {
  json config = golden_json("qwen3_gqa");
  config["eos_token_id"] = {5, 7};
  ASSERT_TRUE(parse(config).ok());
  EXPECT_THAT(parse(config)->eos_token_ids, ElementsAre(5, 7));
}

// Which the model cannot produce: "none", or of a larger vocabulary.
TEST(ModelConfig, TokensOutsideTheVocabularyAreNamed) {
  json config = golden_json("qwen3_gqa");
  config["eos_token_id"] = {5, 96};
  config["bos_token_id"] = -1;
  const auto parsed = parse(config);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_THAT(parsed->eos_token_ids, ElementsAre(5));
  EXPECT_EQ(parsed->bos_token_id, -1);
  EXPECT_THAT(parsed->notes,
              ElementsAre("config.json: bos_token_id: -1 is not a token of the model (0 to 95), so "
                          "it has no effect",
                          "config.json: eos_token_id: 96 is not a token of the model (0 to 95), so "
                          "it has no effect"));
  config["eos_token_id"] = 5.5;
  EXPECT_THAT(complaint(config), HasSubstr("eos_token_id: expected an integer"));
  config["eos_token_id"] = {1, "x"};
  EXPECT_THAT(complaint(config), HasSubstr("eos_token_id[1]: expected an integer"));
}

class ModelDirectory : public testing::Test {
 protected:
  ModelDirectory() { write("config.json", golden_json("qwen3_gqa").dump()); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(scratch_.file(name)) << text;
  }

  const base::ScratchDirectory scratch_;
  const std::string dir_ = scratch_.path();
};

TEST_F(ModelDirectory, GenerationConfigOverridesEndTokens) {
  write("generation_config.json", R"({"eos_token_id": [3, 4], "temperature": 0.6})");
  const Result<ModelConfig> config = read_model_config(dir_);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->eos_token_ids, ElementsAre(3, 4));
}

TEST_F(ModelDirectory, GenerationConfigWithoutEndTokensChangesNothing) {
  write("generation_config.json", R"({"temperature": 0.6, "eos_token_id": null})");
  const Result<ModelConfig> config = read_model_config(dir_);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1));
}

TEST_F(ModelDirectory, TokensOutsideTheVocabularyInGenerationConfig) {
  write("generation_config.json", R"({"eos_token_id": [3, 1000], "bos_token_id": -1})");
  const Result<ModelConfig> config = read_model_config(dir_);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->eos_token_ids, ElementsAre(3));
  EXPECT_THAT(config->notes,
              ElementsAre(HasSubstr("generation_config.json: bos_token_id: -1 is not a token"),
                          HasSubstr("generation_config.json: eos_token_id: 1000 is not a token")));
  write("generation_config.json", R"({"eos_token_id": -1})");
  EXPECT_TRUE(read_model_config(dir_)->eos_token_ids.empty());
}

TEST_F(ModelDirectory, ComplaintsNameTheFile) {
  write("generation_config.json", R"({"eos_token_id": "end"})");
  EXPECT_EQ(read_model_config(dir_).status().message(),
            dir_ + "/generation_config.json: eos_token_id: expected an integer, found 'end'");
  write("generation_config.json", "{");
  EXPECT_THAT(read_model_config(dir_).status().message(), HasSubstr("generation_config.json"));
  std::filesystem::remove(dir_ + "/config.json");
  const Status missing = read_model_config(dir_).status();
  EXPECT_EQ(missing.exit_code(), 2);
  EXPECT_THAT(missing.message(), HasSubstr(dir_ + "/config.json"));
}

struct Refusal {
  const char* model;
  const char* key;
  json value;  // a discarded value: the key is removed
  const char* message;
};

const json kAbsent = json(json::value_t::discarded);

// One wrong key each; the message follows "config.json: <key>: ".
const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> list = {
      // Features.
      {"qwen3_gqa", "hidden_act", "gelu", "expected silu, found gelu; wideep computes no other"},
      {"qwen3_gqa", "attention_bias", true, "expected false, found true; wideep computes no other"},
      {"qwen3_gqa", "use_qk_norm", false, "expected true, found false; wideep computes no other"},
      {"qwen3_gqa", "shared_expert_intermediate_size", 64,
       "expected an integer from 0 to 0, found 64"},
      {"qwen3_gqa",
       "layer_types",
       {"full_attention", "sliding_attention", "full_attention"},
       "expected only full_attention, found sliding_attention; wideep computes no other"},
      {"deepseek_groups",
       "quantization_config",
       {{"quant_method", "gptq"}},
       "quant_method gptq is not supported; supported: fp8, compressed-tensors, modelopt, mxfp4"},
      {"deepseek_groups", "scoring_func", "softmax",
       "expected sigmoid, found softmax; wideep computes no other"},
      {"deepseek_groups", "topk_method", "greedy",
       "expected noaux_tc, found greedy; wideep computes no other"},
      {"deepseek_groups", "moe_layer_freq", 2, "expected an integer from 1 to 1, found 2"},
      {"deepseek_groups", "dtype", "float8_e4m3fn",
       "expected bfloat16, float32 or float16, found float8_e4m3fn"},
      {"deepseek_groups", "torch_dtype", "int8",
       "expected bfloat16, float32 or float16, found int8"},
      {"deepseek_groups",
       "architectures",
       {"MixtralForCausalLM"},
       "MixtralForCausalLM is not supported; supported: DeepseekV3ForCausalLM, "
       "Qwen3MoeForCausalLM"},
      {"deepseek_groups", "architectures", 5, "expected a list that begins with a class name"},
      // Sizes.
      {"qwen3_gqa", "hidden_size", 0, "expected an integer from 1 to 65536, found 0"},
      {"qwen3_gqa", "hidden_size", 32.5, "expected an integer from 1 to 65536, found 32.5"},
      {"qwen3_gqa", "hidden_size", kAbsent, "missing; expected an integer from 1 to 65536"},
      {"qwen3_gqa", "num_hidden_layers", 1025, "expected an integer from 1 to 1024, found 1025"},
      {"qwen3_gqa", "vocab_size", 1 << 25,
       "expected an integer from 1 to 16777216, found 33554432"},
      {"qwen3_gqa", "max_position_embeddings", 1ll << 31,
       "expected an integer from 1 to 2147483647, found 2147483648"},
      {"qwen3_gqa", "num_experts", 5000, "expected an integer from 0 to 4096, found 5000"},
      {"qwen3_gqa", "rms_norm_eps", 0.0, "expected a number from 1e-12 to 0.1, found 0.0"},
      {"qwen3_gqa", "norm_topk_prob", kAbsent, "missing; expected true or false"},
      {"qwen3_gqa", "layer_types", "full_attention", "expected a list of a word for each layer"},
      // Fields that contradict each other.
      {"qwen3_gqa", "num_key_value_heads", 3,
       "expected a divisor of num_attention_heads 4, found 3"},
      {"qwen3_gqa", "head_dim", 15, "expected an even size (rotary pairs), found 15"},
      {"qwen3_gqa", "num_experts_per_tok", 9, "expected at most num_experts 8, found 9"},
      {"qwen3_gqa", "decoder_sparse_step", 0, "expected an integer from 1 to 1024, found 0"},
      {"deepseek_groups", "n_group", 3, "expected a divisor of n_routed_experts 16, found 3"},
      {"deepseek_groups", "n_group", 16,
       "expected groups of at least 2 of the 16 experts (a group is judged by its best two), found "
       "16 groups"},
      {"deepseek_groups", "topk_group", 5, "expected at most n_group 4, found 5"},
      {"deepseek_groups", "num_experts_per_tok", 9,
       "expected at most 8 (experts in topk_group 2 groups), found 9"},
      {"deepseek_groups", "qk_rope_head_dim", 7, "expected an even size (rotary pairs), found 7"},
      {"deepseek_groups", "head_dim", 16, "expected qk_rope_head_dim 8, found 16"},
      {"deepseek_groups", "num_key_value_heads", 2,
       "expected num_attention_heads 4 (latent attention shares no heads), found 2"},
      {"deepseek_groups", "qk_head_dim", 99,
       "expected qk_nope_head_dim + qk_rope_head_dim 24, found 99"},
      {"deepseek_groups", "num_local_experts", 8, "expected n_routed_experts 16, found 8"},
      {"deepseek_groups", "n_group", kAbsent, "missing; expected an integer from 1 to 4096"},
      {"deepseek_groups", "routed_scaling_factor", -1.0,
       "expected a number from 1e-06 to 1000000, found -1.0"},
  };
  return list;
}

TEST(ModelConfig, RefusesByName) {
  for (const Refusal& refusal : refusals()) {
    json config = golden_json(refusal.model);
    config.erase(refusal.key);
    if (std::string_view(refusal.key) == "num_experts") config.erase("num_local_experts");
    if (!refusal.value.is_discarded()) config[refusal.key] = refusal.value;
    EXPECT_EQ(complaint(config),
              std::string("config.json: ") + refusal.key + ": " + refusal.message);
    EXPECT_EQ(parse(config).status().exit_code(), 2);
  }
}

TEST(ModelConfig, LayerTypesAgreeWithTheOtherKeys) {
  json config = golden_json("deepseek_groups");  // layers: dense, MoE, MoE
  config["mlp_layer_types"] = {"dense", "sparse", "sparse", "dense"};
  EXPECT_EQ(complaint(config), "");
  config["mlp_layer_types"] = {"dense", "dense", "sparse"};
  EXPECT_EQ(complaint(config),
            "config.json: mlp_layer_types[1]: expected sparse, as the other keys say, found dense");
}

// ---- what transformers runs, and what it means ----

ModelConfig accepted(json config, const std::map<std::string, json>& changes) {
  for (const auto& [key, value] : changes) config[key] = value;
  const Result<ModelConfig> parsed = parse(config);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? *parsed : ModelConfig{};
}

TEST(ModelConfig, LayersBeyondTheLastHaveNoEffect) {
  const json qwen3 = golden_json("qwen3_gqa");  // three layers
  EXPECT_THAT(accepted(qwen3, {{"mlp_only_layers", {0, 3, 99, -1}}}).is_moe_layer,
              ElementsAre(false, true, true));
  const std::vector<std::string> longer = {"full_attention", "full_attention", "full_attention",
                                           "sliding_attention"};
  EXPECT_EQ(accepted(qwen3, {{"layer_types", longer}}).num_moe_layers(), 3);
  EXPECT_EQ(
      accepted(golden_json("deepseek_groups"), {{"first_k_dense_replace", 61}}).num_moe_layers(),
      0);
}

TEST(ModelConfig, NoExpertsMeansDenseLayers) {
  json config = golden_json("qwen3_gqa");
  config.erase("num_local_experts");
  const ModelConfig dense = accepted(config, {{"num_experts", 0}});
  EXPECT_EQ(dense.num_moe_layers(), 0);
  EXPECT_GT(dense.routing.num_experts, 0);
}

TEST(ModelConfig, SlidingWindowsAreRefused) {
  json config = golden_json("qwen3_gqa");
  config["use_sliding_window"] = true;
  for (const json& size : {json(4096), kAbsent}) {
    config.erase("sliding_window");
    if (!size.is_discarded()) config["sliding_window"] = size;
    EXPECT_EQ(complaint(config),
              "config.json: use_sliding_window: expected false, found true; wideep computes no "
              "other");
  }
}

TEST(ModelConfig, OtherSpellings) {
  const json qwen3 = golden_json("qwen3_gqa");
  accepted(qwen3, {{"hidden_act", "swish"}});
  accepted(qwen3, {{"use_sliding_window", true}, {"sliding_window", nullptr}});
  for (const char* dtype :
       {"auto", "torch.float32", "torch.bfloat16", "float64", "half", "double"}) {
    accepted(qwen3, {{"dtype", dtype}});
    accepted(qwen3, {{"torch_dtype", dtype}});
  }
  const json deepseek = golden_json("deepseek_groups");
  const RoutingConfig one =
      accepted(deepseek, {{"n_group", nullptr}, {"topk_group", nullptr}}).routing;
  EXPECT_EQ(one.num_groups, 1);
  EXPECT_EQ(one.top_k_groups, 1);
}

TEST(ModelConfig, UnknownKeysAreNamedInOneLine) {
  const json qwen3 = golden_json("qwen3_gqa");
  EXPECT_TRUE(accepted(qwen3, {{"router_aux_loss_coef", 0.1}, {"pad_token_id", 3}}).notes.empty());
  EXPECT_THAT(accepted(qwen3, {{"kv_lora_rank", 3}, {"swiglu_limit", 7}, {"zzz", nullptr}}).notes,
              ElementsAre("config.json: unknown keys without effect: kv_lora_rank, swiglu_limit"));
}

// Files of transformers and of this repository have no unknown keys.
TEST(ModelConfig, NothingIsUnknownInTheGoldenModels) {
  for (const char* model : {"deepseek_plain", "deepseek_groups", "deepseek_odd", "deepseek_yarn",
                            "qwen3_gqa", "qwen3_mqa", "qwen3_yarn"}) {
    EXPECT_THAT(read_golden(model).notes, testing::IsEmpty()) << model;
  }
}

// Whatever the type of a value, the answer is a config or one line.
TEST(ModelConfig, SurvivesAnyValueOfAnyKey) {
  for (const char* model : {"deepseek_odd", "qwen3_yarn"}) {
    const json original = golden_json(model);
    for (const auto& [key, value] : original.items()) {
      for (const json& other : {json(nullptr), json(0), json(-1), json(1e300), json("x"),
                                json::array(), json::array({nullptr}), json::object()}) {
        json config = original;
        config[key] = other;
        const std::string message = complaint(config);
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      }
    }
  }
}

// ---- quantisation ----

struct Quantization {
  json config;
  kernels::WeightFormat format;
};

TEST(Config, QuantizationsThatAreRead) {
  const auto packed = [](int bits) {
    return json{
        {"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"config_groups",
         {{"group_0", {{"weights", {{"num_bits", bits}, {"type", "int"}, {"symmetric", true}}}}}}}};
  };
  const Quantization all[] = {
      {{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}, kernels::WeightFormat::kFp8},
      {packed(8), kernels::WeightFormat::kInt8},
      {packed(4), kernels::WeightFormat::kInt4},
      {{{"quant_method", "compressed-tensors"}, {"format", "mxfp4-pack-quantized"}},
       kernels::WeightFormat::kMxfp4},
      {{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}, kernels::WeightFormat::kNvfp4},
  };
  for (const Quantization& quantization : all) {
    json config = golden_json("qwen3_gqa");
    config["quantization_config"] = quantization.config;
    const auto parsed = parse(config);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(parsed->stored_format, quantization.format);
  }
}

TEST(Config, QuantizationsThatAreRefused) {
  const std::pair<json, const char*> all[] = {
      {{{"quant_method", "fp8"}},
       "weight_block_size: expected [128, 128]; wideep reads no other fp8 weights"},
      {{{"quant_method", "modelopt"}, {"quant_algo", "FP8"}},
       "quant_algo: expected NVFP4, found FP8"},
      {{{"quant_method", "compressed-tensors"}, {"format", "float-quantized"}},
       "format: expected pack-quantized or mxfp4-pack-quantized, found float-quantized"},
      {{{"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"config_groups", {{"group_0", {{"weights", {{"num_bits", 3}, {"symmetric", true}}}}}}}},
       "num_bits: expected 4 or 8, found 3"},
  };
  for (const auto& [quantization, expected] : all) {
    json config = golden_json("qwen3_gqa");
    config["quantization_config"] = quantization;
    EXPECT_THAT(complaint(config), testing::HasSubstr(expected));
  }
}

}  // namespace
}  // namespace wideep::model
