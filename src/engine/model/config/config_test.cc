// SPDX-License-Identifier: Apache-2.0
//
// Files of golden models, and a small one of every family, are changed in one key at a time. The
// answer is the value that transformers computes with, or one line that refuses, held word by word;
// for any type of value under any key it is one of the two, and never a crash. A failure runs a
// model with another meaning than its file has: text that is fluent and wrong.
#include "model/config/config.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "model/config/config_testing.h"

namespace wideep::model {
namespace {

using nlohmann::json;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

ModelConfig read_golden(const std::string& model) {
  Result<ModelConfig> config = read_model_config(golden_dir(model));
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig{};
}

std::vector<bool> moe_layers(const ModelConfig& config) {
  std::vector<bool> layers;
  for (const LayerConfig& layer : config.layers) layers.push_back(layer.is_moe);
  return layers;
}

TEST(ModelConfig, DeepseekPlain) {
  const ModelConfig config = read_golden("deepseek_plain");
  EXPECT_EQ(config.family, "deepseek_v3");
  EXPECT_TRUE(config.is_mla());
  EXPECT_EQ(config.q_lora_rank, 0);
  EXPECT_EQ(config.kv_lora_rank, 16);
  EXPECT_EQ(config.shared_intermediate_size, 0);
  EXPECT_THAT(moe_layers(config), ElementsAre(true, true));
  EXPECT_EQ(config.num_moe_layers(), 2);
  EXPECT_EQ(config.bos_token_id, 0);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(1));
}

TEST(ModelConfig, DeepseekGroups) {
  const ModelConfig config = read_golden("deepseek_groups");
  EXPECT_EQ(config.q_lora_rank, 24);
  EXPECT_EQ(config.shared_intermediate_size, config.moe_intermediate_size);
  EXPECT_THAT(moe_layers(config), ElementsAre(false, true, true));
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
  EXPECT_EQ(gqa.family, "qwen3_moe");
  EXPECT_FALSE(gqa.is_mla());
  EXPECT_EQ(gqa.num_heads, 4);
  EXPECT_EQ(gqa.num_kv_heads, 2);
  EXPECT_EQ(gqa.head_dim, 16);
  EXPECT_EQ(gqa.routing.method, RoutingMethod::kRenormalize);
  EXPECT_THAT(moe_layers(gqa), ElementsAre(true, true, true));
  EXPECT_EQ(gqa.shared_intermediate_size, 0);

  const ModelConfig mqa = read_golden("qwen3_mqa");
  EXPECT_EQ(mqa.num_kv_heads, 1);
  EXPECT_EQ(mqa.routing.method, RoutingMethod::kDefault);
  EXPECT_TRUE(mqa.tie_word_embeddings);
  EXPECT_THAT(moe_layers(mqa), ElementsAre(false, true, false, true));

  const ModelConfig yarn = read_golden("qwen3_yarn");
  EXPECT_EQ(yarn.head_dim, 20);
  EXPECT_EQ(yarn.routing.num_experts, 12);
  EXPECT_EQ(yarn.routing.top_k, 3);
  EXPECT_THAT(moe_layers(yarn), ElementsAre(false, true));
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
  EXPECT_EQ(parse(config)->family, "qwen3_moe");
  config["model_type"] = "bloom";
  EXPECT_THAT(complaint(config), StartsWith("config.json: model_type: bloom is not supported: "));
  config.erase("model_type");
  EXPECT_THAT(complaint(config), StartsWith("config.json: architectures: missing; expected "));
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
      {"qwen3_gqa", "mlp_bias", true, "expected false, found true; wideep computes no other"},
      {"qwen3_gqa", "qkv_bias", true, "expected false, found true; wideep computes no other"},
      {"qwen3_gqa", "use_qk_norm", false, "expected true, found false; wideep computes no other"},
      {"qwen3_gqa", "shared_expert_intermediate_size", 64,
       "expected an integer from 0 to 0, found 64"},
      {"qwen3_gqa",
       "layer_types",
       {"full_attention", "sliding_attention", "full_attention"},
       "expected only full_attention, found sliding_attention; wideep computes no other in this "
       "family"},
      {"deepseek_groups",
       "quantization_config",
       {{"quant_method", "hqq"}},
       "quant_method hqq is not supported; supported: fp8, compressed-tensors, modelopt, mxfp4, "
       "gptq, awq, auto-round"},
      {"deepseek_groups", "scoring_func", "softmax",
       "expected sigmoid, found softmax; wideep computes no other"},
      {"deepseek_groups", "topk_method", "greedy",
       "expected noaux_tc, found greedy; wideep computes no other"},
      {"deepseek_groups", "moe_layer_freq", 2, "expected an integer from 1 to 1, found 2"},
      {"deepseek_groups", "dtype", "float8_e4m3fn",
       "expected bfloat16, float32 or float16, found float8_e4m3fn"},
      {"deepseek_groups", "torch_dtype", "int8",
       "expected bfloat16, float32 or float16, found int8"},
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
      {"qwen3_gqa", "num_experts_per_tok", 9, "expected at most the 8 experts, found 9"},
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
  EXPECT_THAT(moe_layers(accepted(qwen3, {{"mlp_only_layers", {0, 3, 99, -1}}})),
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

// Llama 3.2 1B's keys as published, but for its sizes.
TEST(ModelConfig, Llama3IsDense) {
  const ModelConfig config =
      accepted(small_json("llama"), {{"architectures", {"LlamaForCausalLM"}},
                                     {"attention_bias", false},
                                     {"bos_token_id", 1},
                                     {"eos_token_id", {2, 3}},
                                     {"head_dim", 8},
                                     {"mlp_bias", false},
                                     {"num_key_value_heads", 2},
                                     {"pretraining_tp", 1},
                                     {"rms_norm_eps", 1e-5},
                                     {"rope_scaling",
                                      {{"factor", 32.0},
                                       {"high_freq_factor", 4.0},
                                       {"low_freq_factor", 1.0},
                                       {"original_max_position_embeddings", 64},
                                       {"rope_type", "llama3"}}},
                                     {"rope_theta", 5e5},
                                     {"tie_word_embeddings", true}});
  EXPECT_THAT(config.notes, testing::IsEmpty());
  EXPECT_FALSE(config.has_experts());
  EXPECT_EQ(config.dense_intermediate_size, 24);
  EXPECT_EQ(config.rope.scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(config.grouped_query.qkv_bias || config.dense_bias);
}

std::vector<int> windows_of(const ModelConfig& config) {
  std::vector<int> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
  return windows;
}

TEST(ModelConfig, WindowsOfDenseModels) {
  const json mistral = small_json("mistral");
  EXPECT_THAT(windows_of(accepted(mistral, {})), ElementsAre(4096, 4096));  // by default
  EXPECT_THAT(windows_of(accepted(mistral, {{"sliding_window", nullptr}})), ElementsAre(0, 0));
  for (const char* family : {"qwen2", "qwen3"}) {
    const json qwen = small_json(family);
    EXPECT_THAT(windows_of(accepted(qwen, {{"sliding_window", 8}, {"max_window_layers", 1}})),
                ElementsAre(0, 0));
    EXPECT_THAT(
        windows_of(accepted(
            qwen, {{"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", 1}})),
        ElementsAre(0, 8));
    json listed = qwen;
    listed["layer_types"] = {"sliding_attention", "full_attention"};
    EXPECT_THAT(complaint(listed), HasSubstr("use_sliding_window: expected true"));
    listed["use_sliding_window"] = true;
    EXPECT_THAT(windows_of(accepted(listed, {})), ElementsAre(4096, 0));
  }
  EXPECT_TRUE(accepted(small_json("qwen2"), {}).grouped_query.qkv_bias);
  EXPECT_EQ(accepted(small_json("qwen3"), {}).grouped_query.norm, GroupedQueryConfig::Norm::kHead);
}

// Other engines rotate such a share of each head.
TEST(ModelConfig, DenseModelsRotateWholeHeads) {
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"}) {
    json config = small_json(family);
    config["partial_rotary_factor"] = 1.0;
    EXPECT_THAT(accepted(config, {}).notes, testing::IsEmpty());
    config["partial_rotary_factor"] = 0.5;
    EXPECT_THAT(complaint(config), HasSubstr("partial_rotary_factor: expected 1, found 0.5"));
  }
}

TEST(ModelConfig, WindowsOfQwen3) {
  const json qwen3 = golden_json("qwen3_gqa");
  const auto window = [&](const std::map<std::string, json>& changes) {
    return accepted(qwen3, changes).layers.back().window;
  };
  EXPECT_EQ(window({{"sliding_window", 64}}), 0);
  EXPECT_EQ(window({{"use_sliding_window", true}, {"sliding_window", 64}}), 64);
  EXPECT_EQ(window({{"use_sliding_window", true}, {"sliding_window", nullptr}}), 0);
}

TEST(ModelConfig, BiasesOfQwen3) {
  const GroupedQueryConfig attention =
      accepted(golden_json("qwen3_gqa"), {{"attention_bias", true}}).grouped_query;
  EXPECT_TRUE(attention.qkv_bias);
  EXPECT_TRUE(attention.output_bias);
}

TEST(ModelConfig, OtherSpellings) {
  const json qwen3 = golden_json("qwen3_gqa");
  accepted(qwen3, {{"hidden_act", "swish"}});
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

// Python writes numbers that JSON does not have. They are read where nothing depends on them.
TEST(ModelConfig, NumbersOfPython) {
  const std::string config = golden_json("qwen3_gqa").dump();
  const auto with = [&](const std::string& key) {
    return parse_model_config("{" + key + ", " + config.substr(1), "config.json");
  };
  for (const char* number : {"NaN", "Infinity", "-Infinity"}) {
    const auto parsed = with(std::string("\"embd_pdrop\": ") + number);
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_THAT(parsed->notes, testing::IsEmpty());
  }
  json other = golden_json("qwen3_gqa");
  other.erase("rms_norm_eps");
  const std::string text = other.dump();
  EXPECT_THAT(parse_model_config("{\"rms_norm_eps\": NaN, " + text.substr(1), "config.json")
                  .status()
                  .message(),
              StartsWith("config.json: rms_norm_eps: expected a number"));
}

// Whatever the type of a value, the answer is a config or one line.
TEST(ModelConfig, SurvivesAnyValueOfAnyKey) {
  std::vector<json> originals = {golden_json("deepseek_odd"), golden_json("qwen3_yarn")};
  for (const std::string& family : small_families()) originals.push_back(small_json(family));
  for (const json& original : originals) {
    for (const auto& [key, value] : original.items()) {
      for (const json& other : {json(nullptr), json(0), json(-1), json(1e300), json("x"),
                                json::array(), json::array({nullptr}), json::object()}) {
        json config = original;
        config[key] = other;
        const std::string message = complaint(config);
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
        // All families' readers see the values of an unknown one (nearest_family.h).
        config.update({{"architectures", {"ChattyForCausalLM"}}, {"model_type", "chatty"}});
        EXPECT_THAT(complaint(config), HasSubstr("docs/models.md#adding-a-family"));
      }
    }
  }
}

// ---- families ----

TEST(Families, EverySmallModelIsRead) {
  for (const std::string& family : small_families()) {
    const Result<ModelConfig> config = parse(small_json(family));
    ASSERT_TRUE(config.ok()) << family << ": " << config.status().message();
    EXPECT_EQ(config->family, family);
    EXPECT_THAT(config->notes, testing::IsEmpty()) << family;
  }
}

// A family, changes of its small model, and the message after "config.json: ".
struct FamilyRefusal {
  const char* family;
  std::map<std::string, json> changes;
  const char* message;
};

// rope_parameters of layers of two kinds, those of full attention with these.
json kind_ropes(json full) {
  full["rope_theta"] = 1e6;
  return {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
          {"full_attention", std::move(full)}};
}

TEST(Families, RefuseByName) {
  const FamilyRefusal all[] = {
      {"afmoe",
       {{"route_norm", false}},
       "route_norm: expected true, found false; wideep computes no other"},
      {"afmoe",
       {{"score_func", "softmax"}},
       "score_func: expected sigmoid, found softmax; wideep computes no other"},
      {"afmoe", {{"n_group", 2}}, "n_group: expected an integer from 1 to 1, found 2"},
      {"afmoe",
       {{"layer_types", {"sliding_attention", "chunked_attention"}}},
       "layer_types[1]: expected sliding_attention or full_attention, found chunked_attention"},
      {"afmoe",
       {{"sliding_window", nullptr}},
       "sliding_window: missing; layer_types has layers of sliding_attention"},
      {"afmoe",
       {{"rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}}},
       "rope_parameters.partial_rotary_factor: found 0.5, but 8 of the 8 dimensions of a head are "
       "rotated (by the other keys, or by the family)"},
      {"bailing_hybrid",
       {{"kda_lower_bound", 0}},
       "kda_lower_bound: expected a number from -1000000 to -1e-06, found 0"},
      {"bailing_hybrid",
       {{"layer_group_size", 3}},
       "layer_group_size: expected a divisor of num_hidden_layers 2, or layer_types, found 3"},
      {"bailing_hybrid",
       {{"no_kda_lora", false}},
       "no_kda_lora: expected true, found false; wideep computes no other"},
      {"bailing_hybrid",
       {{"expert_swiglu_limit_list", {nullptr, 7.0}}},
       "expert_swiglu_limit_list: expected 0 for every layer; wideep computes no limits here"},
      {"bailing_hybrid",
       {{"qk_rope_head_dim", 0}},
       "qk_rope_head_dim: expected an integer from 1 to 4096, found 0"},
      {"deepseek_v2",
       {{"topk_method", "noaux_tc"}},
       "topk_method: expected greedy or group_limited_greedy, found noaux_tc"},
      {"deepseek_v2",
       {{"scoring_func", "sigmoid"}},
       "scoring_func: expected softmax, found sigmoid; wideep computes no other"},
      {"deepseek_v2",
       {{"topk_method", "group_limited_greedy"}, {"n_group", 3}},
       "n_group: expected a divisor of n_routed_experts 8, found 3"},
      {"deepseek_v32",
       {{"q_lora_rank", nullptr}},
       "q_lora_rank: missing; the indexer's queries are made from its latent"},
      {"deepseek_v32",
       {{"index_head_dim", 4}},
       "index_head_dim: expected at least qk_rope_head_dim 8, found 4"},
      {"deepseek_v32",
       {{"rope_interleave", false}},
       "rope_interleave: expected true, found false; wideep computes no other"},
      {"deepseek_v32",
       {{"layer_types", {"full_attention", "full_attention"}}},
       "layer_types: expected only indexed_attention, found full_attention; wideep computes no "
       "other in this family"},
      {"deepseek_v4",
       {{"layer_types", {"sliding_attention", "full_attention"}}},
       "layer_types[1]: expected sliding_attention, compressed_sparse_attention, "
       "heavily_compressed_attention, found full_attention"},
      {"deepseek_v4",
       {{"compress_ratios", {0, 64}}},
       "compress_ratios[1]: expected 0, 4 or 128, found 64"},
      {"deepseek_v4",
       {{"mlp_layer_types", {"hash_moe", "dense"}}},
       "mlp_layer_types[1]: expected hash_moe or moe, found dense"},
      {"deepseek_v4",
       {{"o_groups", 3}},
       "o_groups: expected a divisor of num_attention_heads 4, found 3"},
      {"deepseek_v4",
       {{"num_key_value_heads", 2}},
       "num_key_value_heads: expected an integer from 1 to 1, found 2"},
      {"deepseek_v4",
       {{"scoring_func", "sigmoid"}},
       "scoring_func: expected sqrtsoftplus, found sigmoid; wideep computes no other"},
      {"deepseek_v4", {{"expert_dtype", "int4"}}, "expert_dtype: expected fp4 or fp8, found int4"},
      {"deepseek_v4",
       {{"n_shared_experts", 2}},
       "n_shared_experts: expected an integer from 1 to 1, found 2"},
      {"deepseek_v4",
       {{"index_head_dim", 8},
        {"partial_rotary_factor", 0.75},
        {"layer_types", {"sliding_attention", "compressed_sparse_attention"}}},
       "index_head_dim: expected at least the 12 rotated dimensions of a head, found 8"},
      {"deepseek_v4",
       {{"qk_rope_head_dim", 4}, {"partial_rotary_factor", 0.5}},
       "qk_rope_head_dim: expected partial_rotary_factor 8, found 4"},
      {"deepseek_v4",
       {{"rope_parameters",
         {{"main", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}},
          {"compress", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.125}}}}}},
       "rope_parameters.main.partial_rotary_factor: expected 0.125, as of the other layers, found "
       "0.5"},
      {"glm5_next",
       {{"qk_rope_head_dim", 8}},
       "qk_rope_head_dim: expected an integer from 0 to 0, found 8"},
      {"glm5_next",
       {{"index_kpool", 3}},
       "index_topk: expected a multiple of index_kpool 3, found 16"},
      {"glm5_next",
       {{"index_kpool", 2000}},
       "index_kpool: expected an integer from 1 to 1024, found 2000"},
      {"glm5_next",
       {{"index_kpool_always_select_tail", false}},
       "index_kpool_always_select_tail: expected true, found false; wideep computes no other"},
      {"glm5_next",
       {{"indexer_types", {"full", "shared"}}},
       "indexer_types[1]: expected full (the layer before it has no indexer), found shared"},
      {"glm5_next",
       {{"layer_types", {"linear_attention", "sliding_attention"}}},
       "layer_types[1]: expected linear_attention or indexed_attention, found sliding_attention"},
      {"glm5_next", {{"mhc", false}}, "mhc: expected true, found false; wideep computes no other"},
      {"glm5_next",
       {{"linear_lower_bound", -1}, {"linear_attn_config", {{"gate_lower_bound", -2}}}},
       "linear_lower_bound: contradicts linear_attn_config.gate_lower_bound"},
      {"glm5_next",
       {{"linear_head_dim", 8}, {"linear_attn_config", {{"head_dim", 16}}}},
       "linear_head_dim: expected linear_attn_config.head_dim 16, found 8"},
      {"dots1",
       {{"layer_types", {"sliding_attention", "full_attention"}}, {"sliding_window", nullptr}},
       "sliding_window: missing; layer_types has layers of sliding_attention"},
      {"ernie4_5_moe",
       {{"use_bias", true}},
       "use_bias: expected false, found true; wideep computes no other"},
      {"ernie4_5_moe", {{"moe_k", 9}}, "moe_k: expected at most the 8 experts, found 9"},
      {"exaone_moe",
       {{"sliding_window_pattern", "LLLG"}},
       "sliding_window_pattern: expected an integer from 1 to 1024, found 'LLLG'"},
      {"exaone_moe", {{"n_group", 3}}, "n_group: expected a divisor of num_experts 8, found 3"},
      {"exaone_moe",
       {{"is_moe_layer", {true, true}}},
       "is_moe_layer: expected [false,true], as the other keys say, found [true,true]"},
      {"exaone_moe",
       {{"first_last_k_dense_replace", 0}},
       "first_last_k_dense_replace: expected first_k_dense_replace 1, found 0"},
      {"bailing_hybrid", {{"rotary_dim", 2}}, "rotary_dim: expected qk_rope_head_dim 8, found 2"},
      {"exaone_moe",
       {{"num_nextn_predict_layers", 1}, {"mtp_layer_types", {"linear"}}},
       "mtp_layer_types: expected full_attention or sliding_attention, found linear"},
      {"mellum",
       {{"num_mtp_layers", 1}, {"mtp_mlp_layer_types", {"both"}}},
       "mtp_mlp_layer_types: expected sparse or dense, found both"},
      {"gemma4_text",
       {{"num_kv_shared_layers", 1}},
       "num_kv_shared_layers: expected 0, found 1; wideep computes no layers that share keys and "
       "values with others"},
      {"gemma4_text",
       {{"hidden_size_per_layer_input", nullptr}},
       "hidden_size_per_layer_input: expected 0, found 256; wideep computes no embeddings of each "
       "layer"},
      {"gemma4_text",
       {{"use_bidirectional_attention", "all"}},
       "use_bidirectional_attention: expected vision or null, found all; wideep computes no text "
       "that attends to what follows"},
      {"gemma4_text",
       {{"hidden_activation", "silu"}},
       "hidden_activation: expected gelu_pytorch_tanh, found silu; wideep computes no other"},
      {"gemma4_text",
       {{"layer_types", {"conv", "full_attention"}}},
       "layer_types[0]: expected full_attention or sliding_attention, found conv"},
      {"gemma4_text",
       {{"num_global_key_value_heads", 3}},
       "num_attention_heads: expected a multiple of the 3 heads of keys and values of a kind of "
       "layers, found 4"},
      {"gemma4_text",
       {{"global_head_dim", 15}},
       "head_dim: expected an even size (rotary pairs), found 15"},
      {"gemma4_text",
       {{"top_k_experts", 9}},
       "top_k_experts: expected at most the 8 experts, found 9"},
      {"gemma4_text",
       {{"per_layer_config", {{"0", {{"head_dim", 16}}}}}},
       "per_layer_config.0: expected 2 heads of keys and values of 8 for 4 of queries, as the "
       "other "
       "layers of its kind have, found 2 of 16 for 4"},
      {"gemma4_text",
       {{"per_layer_config", {{"1", {{"sliding_window", 16}}}}}},
       "per_layer_config.1.sliding_window: expected only head_dim, num_key_value_heads, "
       "num_attention_heads here; wideep computes no other differences of single layers"},
      {"gemma4_text",
       {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}},
       "rope_parameters.sliding_attention: missing; expected an object"},
      {"gemma4_text",
       {{"rope_parameters",
         kind_ropes({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}})}},
       "rope_parameters.full_attention.partial_rotary_factor: expected 1 beside this rope_type, "
       "found 0.5; only proportional rotates a part of a head in this family"},
      {"gemma4_text",
       {{"rope_parameters", kind_ropes({{"rope_type", "proportional"}, {"beta_fast", 32}})}},
       "rope_parameters.full_attention.beta_fast: not a key of proportional rotary parameters"},
      {"gemma4_text",
       {{"rope_parameters",
         kind_ropes({{"rope_type", "proportional"}, {"partial_rotary_factor", 0.1}})}},
       "rope_parameters.full_attention.partial_rotary_factor: expected a share with which at least "
       "one pair of the 16 dimensions of a head rotates, found 0.1"},
      {"glm4_moe",
       {{"partial_rotary_factor", 0.25}},
       "partial_rotary_factor: expected a share that makes an even number of the 12 dimensions of "
       "a head, found 0.25"},
      {"glm_moe_dsa",
       {{"indexer_types", {"shared", "full"}}},
       "indexer_types[0]: expected full (no layer before it), found shared"},
      {"glm_moe_dsa",
       {{"indexer_types", {"full", "half"}}},
       "indexer_types[1]: expected full or shared, found half"},
      {"glm_moe_dsa",
       {{"index_topk_pattern", "F"}},
       "index_topk_pattern: expected one of full or shared for each of the 2 layers, found 1"},
      {"gpt_oss",
       {{"experts_per_token", 3}},
       "experts_per_token: expected num_experts_per_tok 2, found 3"},
      {"gpt_oss",
       {{"initial_context_length", 2048}},
       "initial_context_length: expected original_max_position_embeddings 4096, found 2048"},
      {"gpt_oss",
       {{"layer_types", {"full_attention", "chunked_attention"}}},
       "layer_types[1]: expected sliding_attention or full_attention, found chunked_attention"},
      {"gpt_oss",
       {{"layer_types", {"full_attention"}}},
       "layer_types: expected a word for each of the 2 layers, found 1"},
      {"gpt_oss",
       {{"architectures", {"GptOssForCausalLM"}}, {"model_type", "mixtral"}},
       "model_type: expected gpt_oss, as architectures says, found mixtral; keys that the file "
       "does "
       "not have may mean something else there"},
      {"granitemoe",
       {{"attention_multiplier", 0}},
       "attention_multiplier: expected a number from 1e-06 to 1000000, found 0"},
      {"granitemoehybrid",
       {{"layer_types", {"linear_attention", "conv"}}},
       "layer_types[1]: expected linear_attention or full_attention, found conv"},
      {"granitemoehybrid",
       {{"position_embedding_type", "alibi"}},
       "position_embedding_type: expected rope, found alibi; wideep computes no other"},
      {"granitemoehybrid",
       {{"mamba_d_head", 8}},
       "mamba_n_heads: expected heads of 8 dimensions that make mamba_expand · hidden_size = 64 "
       "together, found 4"},
      {"granitemoehybrid",
       {{"mamba_n_groups", 3}},
       "mamba_n_groups: expected a divisor of mamba_n_heads 4, found 3"},
      {"granitemoehybrid",
       {{"hidden_size", 8192},
        {"mamba_expand", 64},
        {"mamba_n_heads", 1},
        {"mamba_d_head", "auto"}},
       "mamba_n_heads: expected heads of at most 4096 dimensions, found 1 for the 524288 of "
       "mamba_expand · hidden_size"},
      {"nemotron_h",
       {{"layers_block_type", {"linear_attention", "conv"}}},
       "layers_block_type: layer 1: expected linear_attention (M), full_attention (*), moe (E) or "
       "mlp (-)"},
      {"nemotron_h",
       {{"layers_block_type", {"linear_attention"}}},
       "num_hidden_layers: expected 1, as many as layers_block_type or hybrid_override_pattern "
       "has, found 2"},
      {"nemotron_h",
       {{"hybrid_override_pattern", "M*"}},
       "hybrid_override_pattern: expected ME, as layers_block_type says"},
      {"nemotron_h",
       {{"mlp_hidden_act", "silu"}},
       "mlp_hidden_act: expected relu2, found silu; wideep computes no other"},
      {"nemotron_h",
       {{"mlp_bias", true}},
       "mlp_bias: expected false, found true; wideep computes no other"},
      {"nemotron_h",
       {{"attention_bias", true}},
       "attention_bias: expected false, found true; wideep computes no other"},
      {"nemotron_h",
       {{"n_shared_experts", 2}},
       "n_shared_experts: expected an integer from 1 to 1, found 2"},
      {"nemotron_h",
       {{"sliding_window", 64}},
       "sliding_window: expected an integer from 0 to 0, found 64"},
      {"nemotron_h",
       {{"n_groups", 3}},
       "n_groups: expected a divisor of mamba_num_heads 4, found 3"},
      {"nemotron_h",
       {{"time_step_limit", {0.0, 0.1}}},
       "time_step_limit: expected 0, or time_step_min, and Infinity; wideep computes no other "
       "limits in this family"},
      {"nemotron_h", {{"norm_eps", 1e-6}}, "norm_eps: expected layer_norm_epsilon, 1e-05"},
      {"nemotron_h",
       {{"mamba_d_conv", 4}},
       "mamba_d_conv: expected the family's own name of the key"},
      {"granitemoehybrid",
       {{"time_step_limit", {0.5, 0.1}}},
       "time_step_limit: expected two limits, from 0 on, of which the second is not the smaller "
       "one"},
      {"hunyuan_v1_moe",
       {{"moe_topk", {2, 3}}},
       "moe_topk[1]: expected 2, as in the first layer, found 3; wideep computes only equal "
       "layers"},
      {"hunyuan_v1_moe",
       {{"num_shared_expert", {2, 2}}},
       "num_shared_expert: expected a shared MLP of one expert's size, 1, found 2"},
      {"hunyuan_v1_moe",
       {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}},
       "rope_scaling.alpha: missing; wideep computes no dynamic scaling without it"},
      {"hunyuan_v1_moe",
       {{"rope_scaling", {{"type", "dynamic"}, {"alpha", 2.0}, {"beta", 1}}}},
       "rope_scaling.beta: not a key of Hunyuan's dynamic rotary parameters"},
      {"hunyuan_v1_moe",
       {{"use_cla", true}},
       "use_cla: expected false, found true; wideep computes no other"},
      {"cohere2_moe",
       {{"expert_selection_fn", "topk"}},
       "expert_selection_fn: expected sigmoid or softmax, found topk"},
      {"cohere2_moe",
       {{"shared_expert_combination_strategy", "concat"}},
       "shared_expert_combination_strategy: expected average or sum, found concat"},
      {"cohere2_moe",
       {{"layer_types", {"sliding_attention", "chunked_attention"}}},
       "layer_types[1]: expected sliding_attention or full_attention, found chunked_attention"},
      {"cohere2_moe",
       {{"sliding_window", nullptr}},
       "sliding_window: missing; layer_types has layers of sliding_attention"},
      {"cohere2_moe",
       {{"first_k_dense_replace", 1}, {"mlp_layer_types", {"sparse", "sparse"}}},
       "mlp_layer_types[0]: expected dense, as the other keys say, found sparse"},
      {"cohere2_moe",
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}},
       "rope_scaling: expected none: in this family scaling stands in rope_parameters alone"},
      {"cohere2_moe",
       {{"first_k_dense_replace", 3}},
       "first_k_dense_replace: expected an integer from 0 to 2, found 3"},
      {"cohere2_moe",
       {{"rotary_pct", 0.5}},
       "rotary_pct: expected a number from 1 to 1, found 0.5"},
      {"cohere2_moe",
       {{"layer_norm_eps", 0.0}},
       "layer_norm_eps: expected a number from 1e-12 to 0.1, found 0.0"},
      {"dbrx",
       {{"ffn_config", {{"moe_num_experts", 4}, {"moe_top_k", 5}}}},
       "ffn_config.moe_top_k: expected at most the 4 experts, found 5"},
      {"dbrx",
       {{"ffn_config", {{"ffn_act_fn", {{"name", "gelu"}}}}}},
       "ffn_config.ffn_act_fn.name: expected silu, found gelu; wideep computes no other"},
      {"dbrx",
       {{"ffn_config", {{"uniform_expert_assignment", true}}}},
       "ffn_config.uniform_expert_assignment: expected false, found true; wideep computes no "
       "other"},
      {"dbrx",
       {{"ffn_config", {{"moe_normalize_expert_weights", 0.0}}}},
       "ffn_config.moe_normalize_expert_weights: expected a number from 0.1 to 100, found 0.0"},
      {"dbrx",
       {{"attn_config", {{"kv_n_heads", 3}}}},
       "num_key_value_heads: expected a divisor of num_attention_heads 4, found 3"},
      {"dbrx",
       {{"num_key_value_heads", 4}},
       "num_key_value_heads: expected attn_config.kv_n_heads 2, found 4"},
      {"dbrx", {{"hidden_size", 48}}, "d_model: expected hidden_size 48, found 32"},
      {"dbrx",
       {{"head_dim", 16}},
       "d_model: expected n_heads 4 times the size of a head, 16, found 32"},
      {"dbrx",
       {{"rope_parameters", {{"rope_theta", 1e4}}}},
       "attn_config.rope_theta: found 500000, and 10000 in rope_parameters; give one"},
      {"dbrx",
       {{"tie_word_embeddings", true}},
       "tie_word_embeddings: expected false, found true; wideep computes no other"},
      {"phimoe",
       {{"num_experts_per_tok", 3}},
       "num_experts_per_tok: expected 2, which SparseMixer chooses, found 3"},
      {"phimoe",
       {{"router_jitter_noise", -0.5}},
       "router_jitter_noise: expected a number from 0 to 1000, found -0.5"},
      {"phimoe",
       {{"rope_scaling",
         {{"type", "longrope"},
          {"short_factor", {1.0, 1.0, 1.0, 1.0}},
          {"long_factor", {1.0, 1.0, 1.0, 1.0}},
          {"short_mscale", 1.0},
          {"original_max_position_embeddings", 64}}}},
       "rope_scaling.long_mscale: missing; expected a number from 0 to 1000"},
      {"phimoe",
       {{"rope_scaling",
         {{"type", "longrope"},
          {"short_factor", {1.0, 1.0, 1.0, 1.0}},
          {"long_factor", {1.0, 1.0, 1.0}},
          {"short_mscale", 1.0},
          {"long_mscale", 1.0},
          {"original_max_position_embeddings", 64}}}},
       "rope_scaling.long_factor: expected 4 positive numbers, as short_factor has, found 3"},
      {"hy_v3",
       {{"route_norm", false}},
       "route_norm: expected true, found false; wideep computes no other"},
      {"hy_v3",
       {{"mlp_bias", true}},
       "mlp_bias: expected false, found true; wideep computes no other"},
      {"hy_v3",
       {{"num_experts_per_tok", 9}},
       "num_experts_per_tok: expected at most 8 (experts in topk_group 1 groups), found 9"},
      {"laguna",
       {{"gating", false}},
       "gating: expected true, per-head or per-element, found false"},
      {"laguna",
       {{"gating", true}, {"gating_types", {"per_element", "per_element"}}},
       "gating_types: expected only per_head, as gating says, found per_element"},
      {"laguna",
       {{"num_attention_heads_per_layer", {4}}},
       "num_attention_heads_per_layer: expected a number for each of the 2 layers, found 1"},
      {"laguna",
       {{"num_attention_heads_per_layer", {4, 5}}},
       "num_attention_heads_per_layer[1]: expected a multiple of num_key_value_heads 2, found 5"},
      {"laguna",
       {{"moe_apply_router_weight_on_input", true}},
       "moe_apply_router_weight_on_input: expected false, found true; wideep computes no other"},
      {"laguna",
       {{"norm_topk_prob", false}},
       "norm_topk_prob: expected true, found false; wideep computes no other"},
      {"laguna",
       {{"rope_parameters",
         {{"full_attention", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.4}}}}}},
       "rope_parameters.full_attention.partial_rotary_factor: expected a share that makes an even "
       "number of the 8 dimensions of a head, found 0.4"},
      {"laguna",
       {{"partial_rotary_factor", 1.0}},
       "partial_rotary_factor: expected 0.5, as of layers of full_attention in rope_parameters, "
       "found 1"},
      {"kimi_linear",
       {{"mla_use_nope", false}},
       "mla_use_nope: expected true, found false; wideep computes no other"},
      {"kimi_linear",
       {{"linear_attn_config", {{"kda_layers", {1}}, {"full_attn_layers", {1}}}}},
       "linear_attn_config.kda_layers: expected numbers of layers, 1 to 2, each once in one of "
       "full_attn_layers and kda_layers, found 1"},
      {"kimi_linear",
       {{"linear_attn_config", {{"kda_layers", {1}}, {"full_attn_layers", json::array()}}}},
       "linear_attn_config.kda_layers: expected layer 2 here or in full_attn_layers"},
      {"kimi_linear",
       {{"linear_attn_config", {{"kda_layers", {1, 2}}, {"full_attn_layers", json::array()}}},
        {"layer_types", {"linear_attention", "full_attention"}}},
       "layer_types: contradicts linear_attn_config; give one of them"},
      {"kimi_linear",
       {{"linear_attn_config", {{"head_dim", 16}}}},
       "linear_head_dim: expected linear_attn_config.head_dim 16, found 8"},
      {"kimi_linear",
       {{"linear_head_dim", 2049}},
       "linear_head_dim: expected an integer from 1 to 2048, found 2049"},
      {"kimi_linear",
       {{"num_experts_per_token", 3}},
       "num_experts_per_tok: expected num_experts_per_token 3, found 2"},
      {"kimi_linear",
       {{"model_max_length", 128}},
       "model_max_length: expected max_position_embeddings 256, found 128"},
      {"kimi_linear",
       {{"moe_router_activation_func", "softmax"}},
       "moe_router_activation_func: expected sigmoid, found softmax; wideep computes no other"},
      {"lfm2_moe",
       {{"layer_types", nullptr}},
       "layer_types: missing; expected conv or full_attention for each layer"},
      {"lfm2_moe",
       {{"layer_types", {"conv", "mamba"}}},
       "layer_types[1]: expected conv or full_attention, found mamba"},
      {"llama4_text",
       {{"num_experts_per_tok", 2}},
       "num_experts_per_tok: expected 1 (an expert's input is multiplied by its weight, which "
       "wideep computes for one expert per token), found 2"},
      {"llama4_text",
       {{"no_rope_layers", {1}}},
       "no_rope_layers: expected 0 or 1 for each of the 2 layers, found 1"},
      {"llama4_text",
       {{"attention_chunk_size", nullptr},
        {"layer_types", {"chunked_attention", "full_attention"}}},
       "attention_chunk_size: null; layer_types has layers of chunked_attention"},
      {"mellum",
       {{"rope_parameters", kind_ropes({{"rope_type", "yarn"},
                                        {"factor", 4.0},
                                        {"original_max_position_embeddings", 32},
                                        {"truncate", false}})}},
       "rope_parameters.full_attention.truncate: expected true, found false; transformers takes it "
       "for true here, others may not"},
      {"mellum",
       {{"layer_types", {"sliding_attention", "full_attention"}}, {"sliding_window", nullptr}},
       "sliding_window: missing; layer_types has layers of sliding_attention"},
      {"mellum",
       {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e4}}}},
       "rope_parameters.full_attention: missing; expected an object"},
      {"mellum",
       {{"rope_parameters",
         {{"full_attention", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}}}}},
       "rope_parameters.full_attention.partial_rotary_factor: expected 1 beside this rope_type, "
       "found 0.5; only proportional rotates a part of a head in this family"},
      {"mellum",
       {{"rope_theta", 1e6}},
       "rope_theta: expected 500000, as of layers of full_attention in rope_parameters, found "
       "1000000"},
      {"mellum",
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}},
       "rope_scaling: expected none: rope_parameters has an object for each kind of layers"},
      {"mellum",
       {{"num_nextn_predict_layers", 2}},
       "num_nextn_predict_layers: expected an integer from 0 to 1, found 2"},
      {"mellum",
       {{"mlp_layer_types", {"sparse", "thick"}}},
       "mlp_layer_types[1]: expected sparse, as the other keys say, found thick"},
      {"minimax_m2",
       {{"rotary_dim", 6}, {"partial_rotary_factor", 1.0}},
       "rotary_dim: expected head_dim · partial_rotary_factor 8, found 6"},
      {"olmoe",
       {{"rope_scaling", {{"partial_rotary_factor", 0.5}}}},
       "rope_scaling.partial_rotary_factor: found 0.5, but 8 of the 8 dimensions of a head are "
       "rotated (by the other keys, or by the family)"},
      {"minimax_m2",
       {{"use_routing_bias", false}},
       "use_routing_bias: expected true, found false; wideep computes no other"},
      {"minimax_m3_vl_text",
       {{"index_n_heads", 4}},
       "index_n_heads: expected num_key_value_heads 2 (each has a choice of its own), found 4"},
      {"minimax_m3_vl_text",
       {{"index_head_dim", 6}},
       "index_head_dim: expected at least the 8 rotated dimensions of a head, found 6"},
      {"minimax_m3_vl_text",
       {{"index_block_size", 96}},
       "index_block_size: expected a multiple of 64, the positions of a page, found 96"},
      {"minimax_m3_vl_text",
       {{"index_topk_blocks", 2}, {"index_local_blocks", 3}},
       "index_local_blocks: expected at most index_topk_blocks 2, found 3"},
      {"minimax_m3_vl_text",
       {{"index_local_blocks", 0}},
       "index_local_blocks: expected an integer from 1 to 4096, found 0"},
      {"minimax_m3_vl_text",
       {{"index_topk_blocks", 4}, {"sparse_attention_config", {{"sparse_topk_blocks", 3}}}},
       "index_topk_blocks: expected sparse_attention_config.sparse_topk_blocks 3, found 4"},
      {"minimax_m3_vl_text",
       {{"sparse_attention_config", {{"sparse_score_type", "mean"}}}},
       "sparse_attention_config.sparse_score_type: expected max, found mean; wideep computes no "
       "other"},
      {"minimax_m3_vl_text",
       {{"sparse_attention_config", {{"sparse_init_block", 1}}}},
       "sparse_attention_config.sparse_init_block: expected an integer from 0 to 0, found 1"},
      {"minimax_m3_vl_text",
       {{"layer_types", nullptr}, {"sparse_attention_config", {{"sparse_attention_freq", {1}}}}},
       "sparse_attention_config.sparse_attention_freq: expected 0 or 1 for each of 2 layers, found "
       "1 numbers"},
      {"minimax_m3_vl_text",
       {{"layer_types", nullptr},
        {"sparse_attention_config",
         {{"sparse_attention_freq", {0, 1}}, {"sparse_disable_index_value", {1, 0}}}}},
       "sparse_attention_config.sparse_disable_index_value: expected the numbers of "
       "sparse_attention_freq, found others"},
      {"minimax_m3_vl_text",
       {{"hidden_act", "gelu"}},
       "hidden_act: expected swigluoai, found gelu; wideep computes no other"},
      {"minimax_m3_vl_text",
       {{"n_shared_experts", 2}},
       "n_shared_experts: expected an integer from 1 to 1, found 2"},
      {"minimax_m3_vl_text",
       {{"qk_norm_type", "per_layer"}},
       "qk_norm_type: expected per_head, found per_layer; wideep computes no other"},
      {"mistral4",
       {{"rope_parameters", nullptr}},
       "rope_parameters: missing; they say how queries are scaled, too"},
      {"mistral4",
       {{"rope_parameters", {{"rope_type", "default"}}}},
       "rope_parameters.llama_4_scaling_beta: missing; expected a number from 0 to 1000"},
      {"mistral4",
       {{"rope_parameters", {{"rope_type", "linear"}, {"factor", 2}, {"llama_4_scaling_beta", 1}}}},
       "rope_parameters.original_max_position_embeddings: missing; expected an integer from 1 to "
       "2147483647"},
      {"mistral4",
       {{"original_max_position_embeddings", 64}},
       "original_max_position_embeddings: expected that of the rotary parameters, 32, found 64"},
      {"mistral4",
       {{"head_dim", 8}},
       "head_dim: expected qk_nope_head_dim + qk_rope_head_dim 20, found 8"},
      {"mistral4",
       {{"scoring_func", "sigmoid"}},
       "scoring_func: expected softmax, found sigmoid; wideep computes no other"},
      {"mistral4",
       {{"n_group", 8}, {"topk_group", 8}},
       "n_group: expected groups of at least 2 of the 8 experts (a group is judged by its best "
       "two), found 8 groups"},
      {"mimo_v2_flash",
       {{"swa_num_key_value_heads", 2}},
       "swa_num_key_value_heads: expected twice num_key_value_heads, 4, found 2"},
      {"mimo_v2_flash", {{"swa_head_dim", 4}}, "swa_head_dim: expected head_dim 8, found 4"},
      {"mimo_v2_flash", {{"swa_v_head_dim", 8}}, "swa_v_head_dim: expected v_head_dim 6, found 8"},
      {"mimo_v2_flash",
       {{"swa_rope_theta", 5e6}},
       "swa_rope_theta: expected 10000, as the other keys say, or the family without them, found "
       "5000000"},
      {"mimo_v2_flash",
       {{"rope_theta", 1e4}},
       "rope_theta: expected 5000000, as of layers of full_attention in rope_parameters, found "
       "10000"},
      {"mimo_v2_flash",
       {{"add_full_attention_sink_bias", true}},
       "add_full_attention_sink_bias: expected false, found true; wideep computes no other"},
      {"mimo_v2_flash",
       {{"add_swa_attention_sink_bias", false}},
       "add_swa_attention_sink_bias: expected true, found false; wideep computes no other"},
      {"mimo_v2_flash",
       {{"hybrid_layer_pattern", {1, 1}}},
       "hybrid_layer_pattern[0]: expected 0, as the other keys say, or the family without them, "
       "found 1"},
      {"mimo_v2_flash",
       {{"moe_layer_freq", {0, 0}}},
       "moe_layer_freq[1]: expected 1, as the other keys say, or the family without them, found 0"},
      {"mimo_v2_flash",
       {{"sliding_window", 64}, {"sliding_window_size", 128}},
       "sliding_window: expected sliding_window_size 128, or one more, found 64"},
      {"mimo_v2_flash",
       {{"layernorm_epsilon", 1e-6}},
       "layernorm_epsilon: expected 1e-05, as the other keys say, or the family without them, "
       "found 1e-06"},
      {"mimo_v2_flash",
       {{"n_shared_experts", 1}},
       "n_shared_experts: expected an integer from 0 to 0, found 1"},
      {"mimo_v2_flash",
       {{"num_key_value_heads", 4}},
       "num_attention_heads: expected a multiple of the 8 heads of keys and values of a kind of "
       "layers, found 4"},
      {"mixtral",
       {{"hidden_act", "gelu"}},
       "hidden_act: expected silu, found gelu; wideep computes no other"},
      {"olmoe",
       {{"clip_qkv", -1.0}},
       "clip_qkv: expected a number from 1e-06 to 1000000, found -1.0"},
      {"qwen2_moe",
       {{"layer_types", {"sliding_attention", "full_attention"}}},
       "use_sliding_window: expected true, because layer_types has layers of sliding_attention, "
       "found false"},
      {"qwen2_moe",
       {{"shared_expert_intermediate_size", nullptr}},
       "shared_expert_intermediate_size: missing; expected an integer from 1 to 1048576"},
      {"qwen3_5_moe_text",
       {{"output_gate_type", "sigmoid"}},
       "output_gate_type: expected silu, found sigmoid; wideep computes no other"},
      {"qwen3_next",
       {{"linear_num_value_heads", 3}},
       "linear_num_value_heads: expected a multiple of linear_num_key_heads 2, found 3"},
      {"qwen3_next",
       {{"linear_num_key_heads", 1},
        {"linear_num_value_heads", 256},
        {"linear_key_head_dim", 4096},
        {"linear_value_head_dim", 4096}},
       "linear_value_head_dim: expected a state of at most 67108864 numbers for each of the 1 key "
       "heads, found 256 · 4096 · 4096"},
      {"qwen3_next",
       {{"layer_types", {"linear_attention"}}},
       "layer_types: expected a word for each of the 2 layers, found 1"},
      {"qwen3_5_moe_text",
       {{"norm_topk_prob", false}},
       "norm_topk_prob: expected true, found false; wideep computes no other"},
      {"qwen3_5_moe_text",
       {{"mlp_only_layers", {0}}},
       "mlp_only_layers: expected no layers (all are MoE layers), found some"},
      {"solar_open",
       {{"first_k_dense_replace", 1}},
       "first_k_dense_replace: expected an integer from 0 to 0, found 1"},
      {"solar_open",
       {{"use_qk_norm", true}},
       "use_qk_norm: expected false, found true; wideep computes no other"},
      {"step3p5", {{"gating", "per-element"}}, "gating: expected true; wideep computes no other"},
      {"step3p5", {{"sink", true}}, "sink: expected false, found true; wideep computes no other"},
      {"step3p5",
       {{"use_rope_layers", {1}}},
       "use_rope_layers: expected []; wideep computes no other"},
      {"step3p5",
       {{"swiglu_limits", {7.0}}},
       "swiglu_limits: expected a list of a number (or null) for each of the 2 layers"},
      {"step3p5",
       {{"swiglu_limits", {7.0, -1.0}}},
       "swiglu_limits: expected a list of a number (or null) for each of the 2 layers"},
      {"step3p5",
       {{"rope_theta", {1e4, 1e5}}},
       "rope_theta[1]: expected 10000, as other layers of its kind have, found 100000"},
      {"step3p5",
       {{"partial_rotary_factors", {0.5, 2.0}}},
       "partial_rotary_factors[1]: expected a number from 0.001 to 1, found 2"},
      {"step3p5",
       {{"mlp_layer_types", nullptr}, {"moe_layers_enum", "1,x"}},
       "moe_layers_enum: expected numbers of layers, as 3,4,5"},
      {"step3p5",
       {{"moe_num_experts", 6}},
       "moe_num_experts: expected n_routed_experts 8, found 6"},
      {"step3p5",
       {{"num_local_experts", 6}},
       "num_local_experts: expected n_routed_experts 8, found 6"},
      {"step3p5",
       {{"layer_types", {"full_attention", "sliding_attention"}},
        {"sliding_window", 8},
        {"attention_other_setting", {{"num_attention_heads", 6}, {"num_attention_groups", 4}}}},
       "attention_other_setting.num_attention_groups: expected num_key_value_heads 2, found 4"},
      {"step3p5",
       {{"layer_types", {"full_attention", "sliding_attention"}},
        {"sliding_window", 8},
        {"num_sliding_attention_heads", 6},
        {"per_layer_config", {{"1", {{"num_attention_heads", 8}}}}}},
       "num_sliding_attention_heads: expected per_layer_config's 8, found 6"},
      {"step3p5",
       {{"layer_types", {"full_attention", "sliding_attention"}},
        {"sliding_window", 8},
        {"num_sliding_attention_heads", 5}},
       "num_attention_heads: expected a multiple of the 2 heads of keys and values of a kind of "
       "layers, found 5"},
  };
  for (const FamilyRefusal& refusal : all) {
    json config = small_json(refusal.family);
    for (const auto& [key, value] : refusal.changes) config[key] = value;
    EXPECT_EQ(complaint(config), std::string("config.json: ") + refusal.message) << refusal.family;
  }
}

std::vector<int> windows(const ModelConfig& config) {
  std::vector<int> all;
  for (const LayerConfig& layer : config.layers) all.push_back(layer.window);
  return all;
}

TEST(Families, Windows) {
  EXPECT_THAT(windows(accepted(small_json("mixtral"), {{"sliding_window", 9}})), ElementsAre(9, 9));
  EXPECT_THAT(windows(*parse(small_json("gpt_oss"))), ElementsAre(128, 0));
  EXPECT_THAT(windows(accepted(small_json("gpt_oss"),
                               {{"layer_types", {"full_attention", "sliding_attention"}},
                                {"sliding_window", 5}})),
              ElementsAre(0, 5));
  const json dots = small_json("dots1");
  EXPECT_THAT(windows(*parse(dots)), ElementsAre(0, 0));
  EXPECT_THAT(windows(accepted(dots, {{"max_window_layers", 1}})), ElementsAre(0, 4096));
  EXPECT_THAT(windows(accepted(dots, {{"max_window_layers", 0}, {"sliding_window", nullptr}})),
              ElementsAre(0, 0));
  const json qwen2 = small_json("qwen2_moe");
  EXPECT_THAT(windows(accepted(qwen2, {{"sliding_window", 9}})), ElementsAre(0, 0));
  EXPECT_THAT(windows(accepted(qwen2, {{"use_sliding_window", true}})), ElementsAre(4096, 0));
  EXPECT_THAT(windows(accepted(qwen2, {{"use_sliding_window", true}, {"max_window_layers", 0}})),
              ElementsAre(0, 0));
}

TEST(Families, LayersOfLlama4) {
  const ModelConfig plain =
      accepted(small_json("llama4_text"), {{"num_hidden_layers", 4}, {"attention_chunk_size", 16}});
  for (int i = 0; i < 4; ++i) {
    const LayerConfig& layer = plain.layers[static_cast<size_t>(i)];
    EXPECT_EQ(layer.rotates, i != 3);
    EXPECT_EQ(layer.chunk, i != 3 ? 16 : 0);
    EXPECT_TRUE(layer.is_moe);
  }
  const json small = small_json("llama4_text");
  EXPECT_THAT(moe_layers(accepted(small, {{"interleave_moe_layer_step", 2}})),
              ElementsAre(false, true));
  EXPECT_THAT(moe_layers(accepted(small, {{"moe_layers", {0, 7}}})), ElementsAre(true, false));
  EXPECT_EQ(accepted(small, {{"attention_chunk_size", nullptr}}).layers[0].chunk, 0);
  EXPECT_FALSE(accepted(small, {{"no_rope_layers", {0, 1}}}).layers[0].rotates);
  EXPECT_EQ(accepted(small, {{"attn_temperature_tuning", false}}).grouped_query.temperature, 0.0f);
  EXPECT_FLOAT_EQ(parse(small)->grouped_query.temperature, 0.1f);
  EXPECT_FLOAT_EQ(accepted(small, {{"attn_temperature_tuning", 4}}).grouped_query.temperature,
                  0.1f);
  EXPECT_EQ(accepted(small, {{"use_qk_norm", false}}).grouped_query.norm,
            GroupedQueryConfig::Norm::kNone);
}

// What the configuration class of transformers assumes of absent keys, and what it writes.
TEST(Families, OptionsOfMistral4) {
  const json small = small_json("mistral4");
  const ModelConfig config = accepted(small, {});
  EXPECT_EQ(config.latent_temperature, 0.1f);
  EXPECT_EQ(config.latent_temperature_floor, 32.0f);
  EXPECT_EQ(config.routing.method, RoutingMethod::kDeepseekV2);
  EXPECT_TRUE(config.routing.groups_by_pairs);
  EXPECT_TRUE(config.routing.normalize);
  EXPECT_FALSE(config.routing.selection_bias);
  EXPECT_EQ(config.routing.top_k, 4);
  EXPECT_EQ(config.shared_intermediate_size, 12);
  EXPECT_TRUE(config.rope.interleaved);
  json written = small;
  written["rope_parameters"].update({{"type", "yarn"},
                                     {"max_position_embeddings", 256},
                                     {"partial_rotary_factor", 0.4},
                                     {"rope_theta", 1e4}});
  written.update({{"head_dim", 20}, {"qk_head_dim", 20}});
  EXPECT_THAT(accepted(written, {}).notes, testing::IsEmpty());
  written["rope_parameters"]["partial_rotary_factor"] = 0.6;
  EXPECT_THAT(complaint(written), HasSubstr("partial_rotary_factor: found 0.6, but 8 of the"));
  json old = small;
  old["rope_scaling"] = old["rope_parameters"];
  EXPECT_EQ(accepted(old, {}).latent_temperature, 0.1f);
  old["rope_scaling"]["llama_4_scaling_beta"] = 0.2;
  EXPECT_THAT(complaint(old), HasSubstr("llama_4_scaling_beta: contradicts rope_scaling's"));
  json ranks = small;
  ranks.erase("q_lora_rank");
  EXPECT_EQ(accepted(ranks, {}).q_lora_rank, 1024);
  ranks["q_lora_rank"] = nullptr;
  EXPECT_EQ(accepted(ranks, {}).q_lora_rank, 0);
}

// Mistral 3 wraps dense models, too.
TEST(Families, Mistral4IsTheTextOfMistral3) {
  json wrapped = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                  {"model_type", "mistral3"},
                  {"text_config", small_json("mistral4")},
                  {"vision_config", {{"model_type", "pixtral"}}}};
  EXPECT_EQ(complaint(wrapped), "");
  wrapped["text_config"]["model_type"] = "mistral";
  EXPECT_EQ(complaint(wrapped),
            "config.json: text_config.model_type: expected mistral4, the only text model in "
            "Mistral3ForConditionalGeneration that wideep computes, found mistral");
  wrapped["text_config"].erase("model_type");
  EXPECT_THAT(complaint(wrapped), HasSubstr("that wideep computes, found none"));
  wrapped.erase("text_config");
  EXPECT_THAT(complaint(wrapped), HasSubstr("model_type: expected mistral4, the only text model"));
}

TEST(Families, LayersOfKExaone) {
  const ModelConfig plain = accepted(small_json("exaone_moe"), {{"num_hidden_layers", 5}});
  EXPECT_THAT(windows(plain), ElementsAre(4096, 4096, 4096, 0, 4096));
  EXPECT_THAT(moe_layers(plain), ElementsAre(false, true, true, true, true));
  for (const LayerConfig& layer : plain.layers) EXPECT_EQ(layer.rotates, layer.window > 0);
  const ModelConfig listed =
      accepted(small_json("exaone_moe"), {{"layer_types", {"full_attention", "sliding_attention"}},
                                          {"mlp_layer_types", {"sparse", "dense"}},
                                          {"sliding_window_pattern", "GL"},
                                          {"num_nextn_predict_layers", 1}});
  EXPECT_THAT(windows(listed), ElementsAre(0, 4096));
  EXPECT_FALSE(listed.layers[0].rotates);
  EXPECT_THAT(moe_layers(listed), ElementsAre(true, false));
  EXPECT_EQ(listed.num_mtp_layers, 1);
  EXPECT_FALSE(listed.names_mtp_layers);  // nothing says its kind
  ModelConfig predicting =
      accepted(small_json("exaone_moe"),
               {{"num_nextn_predict_layers", 1}, {"mtp_layer_types", {"sliding_attention"}}});
  ASSERT_TRUE(add_prediction_layers(1, &predicting).ok());
  EXPECT_EQ(predicting.layers.back().window, 4096);
  EXPECT_TRUE(predicting.layers.back().rotates);
  EXPECT_FALSE(predicting.layers.back().is_moe);
}

TEST(Families, LayersOfGemma4) {
  const json small = small_json("gemma4_text");
  const ModelConfig config = *parse(small);
  EXPECT_THAT(windows(config), ElementsAre(512, 0));
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.norms_after && config.layer_scalar && config.dense_beside_experts);
  EXPECT_TRUE(config.routing.own_norm && config.routing.expert_scale);
  EXPECT_FLOAT_EQ(config.embedding_scale * config.embedding_scale, 32.0f);
  EXPECT_EQ(config.logits_cap, 0.0f);
  EXPECT_EQ(config.dense_activation.kind, kernels::Activation::Kind::kGeluTanh);
  const AttentionKind sliding = config.attention_of(0), full = config.attention_of(1);
  EXPECT_EQ(sliding.head_dim, 8);
  EXPECT_EQ(sliding.num_kv_heads, 2);
  EXPECT_EQ(sliding.rope.theta, 1e4);
  EXPECT_EQ(sliding.rope.rotating_pairs, 0);
  EXPECT_FALSE(sliding.options.value_is_key);
  EXPECT_EQ(full.head_dim, 16);
  EXPECT_EQ(full.value_dim, 16);
  EXPECT_EQ(full.num_kv_heads, 1);
  EXPECT_EQ(full.options.rotary_dim, 16);
  EXPECT_EQ(full.rope.theta, 1e6);
  EXPECT_EQ(full.rope.rotating_pairs, 2);
  EXPECT_TRUE(full.options.value_is_key && full.options.value_norm);
  EXPECT_EQ(full.options.scale, 1.0f);
  EXPECT_EQ(config.heads_width(), 64);
  // The other number of heads is that of layers whose values are keys.
  EXPECT_EQ(accepted(small, {{"attention_k_eq_v", false}}).attention_of(1).num_kv_heads, 2);
  // What transformers 5 saves is the whole truth.
  const ModelConfig saved = accepted(small, {{"per_layer_config", {{"1", {{"head_dim", 12}}}}}});
  EXPECT_EQ(saved.attention_of(1).head_dim, 12);
  EXPECT_EQ(saved.attention_of(1).num_kv_heads, 2);
  // The last layer attends to all whatever the file says, as in transformers.
  EXPECT_THAT(windows(accepted(small, {{"layer_types", {"sliding_attention", "sliding_attention"}},
                                       {"sliding_window", 9}})),
              ElementsAre(9, 0));
  const ModelConfig dense =
      accepted(small, {{"enable_moe_block", false}, {"num_experts", nullptr}});
  EXPECT_FALSE(dense.has_experts());
  EXPECT_EQ(dense.dense_intermediate_size, 24);
}

TEST(Families, MoreIndexedPositionsThanThereAreChooseAll) {
  const ModelConfig config = accepted(small_json("deepseek_v32"), {{"index_topk", 2147483647}});
  EXPECT_EQ(config.indexer.top_k, config.max_position_embeddings);
}

TEST(Families, LayersThatShareAnIndexOfGlm5) {
  const auto sharing = [](const std::map<std::string, json>& changes) {
    std::vector<bool> all;
    json config = small_json("glm_moe_dsa");
    config["num_hidden_layers"] = 6;
    for (const LayerConfig& layer : accepted(config, changes).layers) {
      all.push_back(layer.shares_index);
    }
    return all;
  };
  EXPECT_THAT(sharing({}), Each(false));
  EXPECT_THAT(sharing({{"index_topk_freq", 3}}),
              ElementsAre(false, false, true, true, false, true));
  EXPECT_THAT(sharing({{"index_topk_freq", 2}, {"index_skip_topk_offset", 4}}),
              ElementsAre(false, false, false, false, true, false));
  EXPECT_THAT(sharing({{"index_topk_pattern", "FSSFSF"}, {"index_topk_freq", 2}}),
              ElementsAre(false, true, true, false, true, false));
}

TEST(Families, GroupsOfGlm5Next) {
  const json small = small_json("glm5_next");
  const ModelConfig config = accepted(small, {{"rms_norm_eps", 1e-3}});
  EXPECT_EQ(config.indexer.group, 4);
  EXPECT_EQ(config.indexer.first_choice(), 19);
  EXPECT_EQ(config.indexer.row_width(), 24);
  EXPECT_EQ(config.latent_norm_eps, 1e-3f);
  EXPECT_FALSE(config.layers[1].rotates);
  EXPECT_TRUE(config.hyper.is_on());
  EXPECT_FALSE(config.hyper.learned_end);
  EXPECT_EQ(config.expert_activation(1).limit, 10.0f);
  // More positions than there are: none are chosen.
  const ModelConfig all = accepted(small, {{"index_topk", 0x7fffffff - 3}});
  EXPECT_GE(all.first_choice(), all.max_position_embeddings);
  // The word of an indexer means nothing in a layer without attention.
  const json words = {"linear_attention", "full_attention", "indexed_attention"};
  const ModelConfig shared = accepted(small, {{"num_hidden_layers", 3},
                                              {"layer_types", words},
                                              {"mlp_layer_types", nullptr},
                                              {"indexer_types", {"shared", "full", "shared"}}});
  EXPECT_FALSE(shared.layers[0].shares_index);
  EXPECT_TRUE(shared.layers[2].shares_index);
}

// The least logarithm of decays, in both spellings.
TEST(Families, DecaysOfGlm5Next) {
  const json small = small_json("glm5_next");
  const auto bound = [&](const std::map<std::string, json>& changes) {
    return accepted(small, changes).kimi_delta.decay_bound;
  };
  const auto listed = [&](const json& sizes) { return bound({{"linear_attn_config", sizes}}); };
  EXPECT_EQ(bound({}), -5.0f);
  EXPECT_EQ(bound({{"linear_lower_bound", -2}}), -2.0f);
  EXPECT_EQ(bound({{"linear_lower_bound", nullptr}}), 0.0f);
  EXPECT_EQ(listed({{"gate_lower_bound", -3}}), -3.0f);
  EXPECT_EQ(listed({{"gate_lower_bound", nullptr}}), -5.0f);
  EXPECT_EQ(listed({{"gate_lower_bound", nullptr}, {"safe_gate", false}}), 0.0f);
  EXPECT_EQ(listed({{"safe_gate", false}}), -5.0f);
  EXPECT_EQ(bound({{"linear_lower_bound", nullptr}, {"linear_attn_config", json::object()}}),
            -5.0f);
}

TEST(Families, LayersOfErnie) {
  const json ernie = small_json("ernie4_5_moe");
  EXPECT_THAT(moe_layers(*parse(ernie)), ElementsAre(false, true));
  EXPECT_THAT(moe_layers(accepted(ernie, {{"num_hidden_layers", 5},
                                          {"moe_layer_interval", 2},
                                          {"moe_layer_end_index", 2}})),
              ElementsAre(false, true, false, false, false));
  EXPECT_TRUE(parse(ernie)->tie_word_embeddings);
  EXPECT_FALSE(accepted(ernie, {{"tie_word_embeddings", false}}).tie_word_embeddings);
}

TEST(Families, MixersThatKeepStates) {
  const auto mixers = [](const ModelConfig& config) {
    std::vector<LayerConfig::Mixer> all;
    for (const LayerConfig& layer : config.layers) all.push_back(layer.mixer);
    return all;
  };
  using enum LayerConfig::Mixer;
  EXPECT_THAT(mixers(accepted(small_json("qwen3_next"), {{"num_hidden_layers", 5}})),
              ElementsAre(kDeltaNet, kDeltaNet, kDeltaNet, kAttention, kDeltaNet));
  EXPECT_THAT(mixers(accepted(small_json("qwen3_5_moe_text"), {{"full_attention_interval", 2}})),
              ElementsAre(kDeltaNet, kAttention));
  EXPECT_THAT(mixers(*parse(small_json("lfm2_moe"))), ElementsAre(kConvolution, kAttention));
  EXPECT_THAT(mixers(accepted(small_json("kimi_linear"), {{"num_hidden_layers", 6}})),
              ElementsAre(kKimiDelta, kKimiDelta, kKimiDelta, kKimiDelta, kAttention, kKimiDelta));
  const json lists = {{"full_attn_layers", {1}}, {"kda_layers", {2}}};
  EXPECT_THAT(mixers(accepted(small_json("kimi_linear"), {{"linear_attn_config", lists}})),
              ElementsAre(kAttention, kKimiDelta));
  EXPECT_THAT(mixers(*parse(small_json("bailing_hybrid"))), ElementsAre(kKimiDelta, kAttention));
  EXPECT_THAT(mixers(accepted(small_json("glm5_next"), {{"num_hidden_layers", 5},
                                                        {"layer_types", nullptr},
                                                        {"mlp_layer_types", nullptr}})),
              ElementsAre(kKimiDelta, kKimiDelta, kKimiDelta, kAttention, kKimiDelta));
  EXPECT_TRUE(parse(small_json("lfm2_moe"))->tie_word_embeddings);
  EXPECT_FALSE(accepted(small_json("lfm2_moe"), {{"tie_embedding", false}}).tie_word_embeddings);
}

TEST(Families, GroupsOfDeepseekV4) {
  const auto groups = [](const ModelConfig& config) {
    std::vector<int> all;
    for (int layer = 0; layer < config.num_layers; ++layer) {
      all.push_back(config.attention_of(layer).group_size);
    }
    return all;
  };
  const json small = small_json("deepseek_v4");
  const ModelConfig config = accepted(small, {{"num_hidden_layers", 5}});
  EXPECT_THAT(groups(config), ElementsAre(128, 128, 128, 4, 128));
  EXPECT_TRUE(config.attention_of(3).chooses_entries);
  EXPECT_FALSE(config.attention_of(4).chooses_entries);
  EXPECT_TRUE(config.layers[2].by_token);
  EXPECT_FALSE(config.layers[3].by_token);
  // As published: one entry more, of the layer that predicts.
  const ModelConfig published = accepted(
      small, {{"compress_ratios", {0, 4, 0}}, {"num_hash_layers", 1}, {"qk_rope_head_dim", 8}});
  EXPECT_THAT(groups(published), ElementsAre(0, 4));
  EXPECT_EQ(published.layers[0].window, 128);
  EXPECT_EQ(published.layers[1].window, 0);
  EXPECT_FALSE(published.layers[1].by_token);
  EXPECT_EQ(published.grouped_query.rotary_dim, 8);
  const json rates = {{"compressed_sparse_attention", 3}, {"heavily_compressed_attention", 9}};
  EXPECT_THAT(
      groups(accepted(small, {{"compress_rates", rates},
                              {"layer_types",
                               {"compressed_sparse_attention", "heavily_compressed_attention"}}})),
      ElementsAre(3, 9));
  // Where no layer chooses entries, there is no indexer.
  EXPECT_EQ(accepted(small, {{"compress_ratios", {0, 128}}}).indexer.num_heads, 0);
}

// It has a window and routes by its router, even where no other layer does.
TEST(Families, PredictionLayerOfDeepseekV4) {
  const json small = small_json("deepseek_v4");
  ModelConfig config = accepted(small, {{"compress_ratios", {4, 128, 0}}, {"num_hash_layers", 2}});
  ASSERT_TRUE(add_prediction_layers(1, &config).ok());
  EXPECT_EQ(config.layers[2].window, 128);
  EXPECT_EQ(config.attention_of(2).group_size, 0);
  EXPECT_TRUE(config.layers[2].is_moe);
  EXPECT_FALSE(config.layers[2].by_token);
  const auto first = [&](const std::string& canonical) {
    return config.tensor_names.published("model.layers.2." + canonical).front().name;
  };
  EXPECT_EQ(first("e_proj.weight"), "mtp.0.e_proj.weight");
  EXPECT_EQ(first("shared_head.norm.weight"), "mtp.0.norm.weight");
  EXPECT_EQ(first("hc_head.hc_fn"), "mtp.0.hc_head_fn");
  EXPECT_EQ(first("attn_hc.base"), "mtp.0.hc_attn_base");
  EXPECT_EQ(first("self_attn.kv_proj.weight"), "mtp.0.attn.wkv.weight");
  EXPECT_EQ(first("mlp.experts.3.up_proj.weight"), "mtp.0.ffn.experts.3.w3.weight");
  EXPECT_TRUE(accepted(small, {{"compress_ratios", {4, 128}}}).names_mtp_layers);
  EXPECT_FALSE(accepted(small, {{"compress_ratios", {4, 128, 128}}}).names_mtp_layers);
  EXPECT_FALSE(accepted(small, {{"num_nextn_predict_layers", 2}}).names_mtp_layers);
}

// The scaling is of layers with entries, and its cosines have no factor unless the file has one.
TEST(Families, RotationsOfDeepseekV4) {
  const json yarn = {{"type", "yarn"}, {"factor", 16}, {"original_max_position_embeddings", 64}};
  const json small = small_json("deepseek_v4");
  const ModelConfig config =
      accepted(small, {{"rope_scaling", yarn}, {"compress_rope_theta", 3e4}});
  EXPECT_EQ(config.rope.scaling, RopeConfig::Scaling::kNone);
  EXPECT_EQ(config.rope.theta, 1e4);
  const RopeConfig compress = config.attention_kind(2).rope;
  EXPECT_EQ(compress.scaling, RopeConfig::Scaling::kYarn);
  EXPECT_EQ(compress.theta, 3e4);
  EXPECT_EQ(compress.attention_factor, 1.0);
  EXPECT_TRUE(compress.interleaved);
  const json nested = {{"main", {{"rope_theta", 500.0}, {"partial_rotary_factor", 0.125}}},
                       {"compress", yarn}};
  json parameters = nested;
  parameters["compress"].update({{"rope_theta", 700.0}, {"partial_rotary_factor", 0.125}});
  const ModelConfig both = accepted(small, {{"rope_parameters", parameters}});
  EXPECT_EQ(both.rope.theta, 500.0);
  EXPECT_EQ(both.attention_kind(1).rope.theta, 700.0);
  EXPECT_GT(both.attention_kind(1).rope.attention_factor, 1.2);
}

TEST(Families, MixersOfGranite4) {
  const json small = small_json("granitemoehybrid");
  const ModelConfig config = *parse(small);
  EXPECT_EQ(config.layers[0].mixer, LayerConfig::Mixer::kMamba2);
  EXPECT_EQ(config.layers[1].mixer, LayerConfig::Mixer::kAttention);
  EXPECT_FALSE(config.layers[1].rotates);
  EXPECT_EQ(config.shared_intermediate_size, 1024);
  EXPECT_EQ(config.mamba2.head_dim, 16);
  EXPECT_EQ(config.mamba2.projected_width(), 64 + 64 + 2 * 6 + 4);
  EXPECT_EQ(config.mamba2.max_step, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(accepted(small, {{"position_embedding_type", "rope"}}).layers[1].rotates);
  // As files from before transformers 5 say it.
  json published = small;
  published["layers_block_type"] = {"mamba", "attention"};
  published.erase("layer_types");
  published["position_embedding_type"] = "nope";
  published["mamba_d_head"] = "auto";
  published["mamba_chunk_size"] = 256;
  published["time_step_limit"] = {0.25, "Infinity"};  // a number of Python, as it is read
  const ModelConfig same = *parse(published);
  EXPECT_EQ(same.layers, config.layers);
  EXPECT_EQ(same.mamba2.min_step, 0.25f);
  EXPECT_THAT(same.notes, testing::IsEmpty());
  published["time_step_limit"] = {0.25, {{"__float__", "Infinity"}}};
  EXPECT_EQ(parse(published)->mamba2.max_step, std::numeric_limits<float>::infinity());

  const ModelConfig dense =
      accepted(small, {{"num_local_experts", 0}, {"shared_intermediate_size", 24}});
  EXPECT_FALSE(dense.has_experts());
  EXPECT_EQ(dense.dense_intermediate_size, 24);
  EXPECT_EQ(dense.shared_intermediate_size, 0);
}

// Two layers of the files: attention without positions, then experts.
TEST(Families, PredictionLayerOfNemotron) {
  const json small = small_json("nemotron_h");
  const json one = {{"num_nextn_predict_layers", 1}};
  ModelConfig config = accepted(small, one);
  EXPECT_TRUE(config.names_mtp_layers);
  ASSERT_TRUE(add_prediction_layers(1, &config).ok());
  const LayerConfig& layer = config.layers.back();
  EXPECT_EQ(layer.mixer, LayerConfig::Mixer::kAttention);
  EXPECT_FALSE(layer.rotates);
  EXPECT_TRUE(layer.has_mlp && layer.is_moe);
  const auto first = [&](const std::string& module) {
    return config.tensor_names
        .published(fmt::format("model.layers.{}.{}.weight", config.num_layers, module))
        .front()
        .name;
  };
  EXPECT_EQ(first("eh_proj"), "mtp.layers.0.eh_proj.weight");
  EXPECT_EQ(first("input_layernorm"), "mtp.layers.0.norm.weight");
  EXPECT_EQ(first("self_attn.q_proj"), "mtp.layers.0.mixer.q_proj.weight");
  EXPECT_EQ(first("mlp.experts.3.up_proj"), "mtp.layers.1.mixer.experts.3.up_proj.weight");
  EXPECT_EQ(first("shared_head.norm"), "mtp.layers.1.final_layernorm.weight");
  const auto is_known = [&](json more) {
    more.update(one);
    return accepted(small, more).names_mtp_layers;
  };
  EXPECT_TRUE(is_known({{"mtp_layers_block_type", {"attention", "moe"}}}));
  EXPECT_FALSE(is_known({{"mtp_layers_block_type", {"moe", "attention"}}}));
  EXPECT_FALSE(is_known({{"mtp_hybrid_override_pattern", "*E*E"}}));
  EXPECT_FALSE(accepted(small, {{"num_nextn_predict_layers", 2}}).names_mtp_layers);
}

TEST(Families, LayersOfOnePartOfNemotron) {
  const json small = small_json("nemotron_h");
  const ModelConfig config = *parse(small);
  EXPECT_EQ(config.layers[0].mixer, LayerConfig::Mixer::kMamba2);
  EXPECT_FALSE(config.has_mlp(0));
  EXPECT_FALSE(config.has_mixer(1));
  EXPECT_TRUE(config.is_moe(1));
  EXPECT_TRUE(config.has_state());
  EXPECT_FALSE(config.activation.has_gate());
  EXPECT_FALSE(config.mlp_activation(1).has_gate());
  EXPECT_EQ(config.routing.method, RoutingMethod::kDeepseekV3);
  EXPECT_EQ(config.expert_hidden_size(), 32);
  EXPECT_EQ(config.shared_intermediate_size, 10);
  EXPECT_EQ(config.mamba2.min_step, 0.001f);
  EXPECT_EQ(config.mamba2.projected_width(), 24 + 24 + 2 * 2 * 5 + 4);
  EXPECT_EQ(accepted(small, {{"moe_latent_size", 16}}).expert_hidden_size(), 16);

  // As published: a pattern of letters, and keys that say nothing more.
  json published = small;
  published.erase("layers_block_type");
  published.update({{"hybrid_override_pattern", "-*ME"},
                    {"num_hidden_layers", 4},
                    {"norm_eps", 1e-5},
                    {"layer_norm_epsilon", 1e-5},
                    {"time_step_limit", {0.0, "Infinity"}},
                    {"time_step_min", 0.25},
                    {"rope_theta", 10000},
                    {"partial_rotary_factor", 1.0},
                    {"mamba_proj_bias", false},
                    {"chunk_size", 128},
                    {"num_nextn_predict_layers", 1},
                    {"mtp_hybrid_override_pattern", "*E"}});
  const ModelConfig same = *parse(published);
  EXPECT_THAT(same.notes, testing::IsEmpty());
  EXPECT_TRUE(same.is_dense(0));
  EXPECT_TRUE(same.is_cached(1));
  EXPECT_FALSE(same.is_cached(0));
  EXPECT_EQ(same.layers[2], config.layers[0]);
  EXPECT_EQ(same.num_moe_layers(), 1);
  EXPECT_EQ(same.mamba2.min_step, 0.25f);
  EXPECT_EQ(same.num_mtp_layers, 1);
  // Its list alone says how many layers a file of transformers 5 has.
  published.erase("num_hidden_layers");
  EXPECT_EQ(parse(published)->num_layers, 4);

  const ModelConfig dense = accepted(small, {{"layers_block_type", {"mamba", "mlp"}}});
  EXPECT_FALSE(dense.has_experts());
  EXPECT_EQ(dense.dense_intermediate_size, 24);
  EXPECT_EQ(dense.shared_intermediate_size, 0);
}

TEST(Families, OptionsOfKimiDelta) {
  const json kimi = small_json("kimi_linear");
  const ModelConfig plain = *parse(kimi);
  EXPECT_EQ(plain.kimi_delta.num_heads, 32);
  EXPECT_EQ(plain.kimi_delta.decay_rank, 8);
  EXPECT_EQ(plain.kimi_delta.decay_bound, 0.0f);
  EXPECT_FALSE(plain.layers[0].rotates);
  EXPECT_FALSE(plain.latent_gate);
  EXPECT_EQ(plain.routing.scaling_factor, 2.446f);
  EXPECT_FALSE(accepted(kimi, {{"moe_renormalize", false}}).routing.normalize);
  EXPECT_FALSE(accepted(kimi, {{"norm_topk_prob", false}}).routing.normalize);
  EXPECT_EQ(accepted(kimi, {{"qk_rope_head_dim", 0}}).head_dim, 12);
  json published = kimi;
  published.erase("max_position_embeddings");
  EXPECT_EQ(accepted(published, {{"model_max_length", 99}}).max_position_embeddings, 99);

  for (const char* golden : {"kimi_linear_plain", "kimi_linear_minimal"}) {
    const auto config = read_model_config(golden_dir(std::string("../family_models/") + golden));
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_THAT(config->notes, testing::IsEmpty()) << golden;
  }

  // head_dim of published files is that of the delta rule; transformers writes the rotation's.
  const json ling = small_json("bailing_hybrid");
  EXPECT_EQ(accepted(ling, {{"head_dim", 24}}).kimi_delta.head_dim, 24);
  const ModelConfig saved = accepted(ling, {{"head_dim", 8}, {"linear_head_dim", 24}});
  EXPECT_EQ(saved.kimi_delta.head_dim, 24);
  EXPECT_EQ(saved.kimi_delta.num_heads, 4);
  EXPECT_EQ(saved.kimi_delta.decay_rank, 0);
  EXPECT_EQ(saved.kimi_delta.decay_bound, -5.0f);
  EXPECT_TRUE(saved.latent_gate);
  EXPECT_TRUE(saved.layers[1].rotates);
  EXPECT_EQ(accepted(ling, {{"kda_safe_gate", false}}).kimi_delta.decay_bound, 0.0f);
}

// The keys of the published file: those of Qwen3.5, and the gate's activation by name.
TEST(Families, Qwen36IsQwen35) {
  json text = small_json("qwen3_5_moe_text");
  text.erase("intermediate_size");
  text.update({{"num_hidden_layers", 4},
               {"layer_types",
                {"linear_attention", "linear_attention", "linear_attention", "full_attention"}},
               {"full_attention_interval", 4},
               {"head_dim", 16},
               {"hidden_act", "silu"},
               {"attention_bias", false},
               {"attn_output_gate", true},
               {"output_gate_type", "swish"},
               {"linear_conv_kernel_dim", 4},
               {"mamba_ssm_dtype", "float32"},
               {"mlp_only_layers", json::array()},
               {"mtp_num_hidden_layers", 1},
               {"mtp_use_dedicated_embeddings", false},
               {"bos_token_id", 44},
               {"eos_token_id", 44},
               {"pad_token_id", nullptr},
               {"partial_rotary_factor", 0.25},
               {"rms_norm_eps", 1e-6},
               {"rope_parameters",
                {{"rope_type", "default"},
                 {"rope_theta", 10000000},
                 {"partial_rotary_factor", 0.25},
                 {"mrope_interleaved", true},
                 {"mrope_section", {1, 1, 0}}}}});
  const json outer = {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                      {"model_type", "qwen3_5_moe"},
                      {"language_model_only", false},
                      {"image_token_id", 56},
                      {"text_config", text},
                      {"tie_word_embeddings", false},
                      {"vision_config", {{"model_type", "qwen3_5_moe"}, {"depth", 27}}}};
  const ModelConfig config = accepted(outer, {});
  EXPECT_THAT(config.notes, testing::IsEmpty());
  EXPECT_EQ(config.layers[2].mixer, LayerConfig::Mixer::kDeltaNet);
  EXPECT_EQ(config.layers[3].mixer, LayerConfig::Mixer::kAttention);
  EXPECT_EQ(config.grouped_query.rotary_dim, 4);
  EXPECT_EQ(config.rope.theta, 1e7);
  EXPECT_EQ(config.num_mtp_layers, 1);
  EXPECT_TRUE(config.names_mtp_layers);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(44));
}

TEST(Families, KindsOfMellum) {
  const json small = small_json("mellum");
  const ModelConfig plain = *parse(small);
  EXPECT_TRUE(plain.other_kinds.empty());
  EXPECT_EQ(plain.rope.theta, 5e5);
  EXPECT_EQ(plain.routing.method, RoutingMethod::kRenormalize);
  EXPECT_EQ(accepted(small, {{"norm_topk_prob", false}}).routing.method, RoutingMethod::kDefault);
  const json both = {"sliding_attention", "full_attention"};
  const ModelConfig mixed = accepted(small, {{"layer_types", both}, {"attention_bias", true}});
  EXPECT_THAT(windows(mixed), ElementsAre(1024, 0));
  EXPECT_EQ(mixed.attention_of(0).rope.theta, 1e4);
  EXPECT_EQ(mixed.attention_of(1).rope.theta, 5e5);
  EXPECT_TRUE(mixed.attention_of(0).options.output_bias);
  const json yarn = {{"rope_type", "yarn"}, {"rope_theta", 1e3}, {"factor", 2.0}};
  const ModelConfig ropes =
      accepted(small, {{"layer_types", both},
                       {"rope_parameters",
                        {{"sliding_attention", {{"rope_theta", 1e5}}}, {"full_attention", yarn}}},
                       {"rope_theta", 1e3},
                       {"mlp_layer_types", {"dense", "sparse"}},
                       {"num_mtp_layers", 1}});
  EXPECT_EQ(ropes.attention_of(0).rope.theta, 1e5);
  EXPECT_EQ(ropes.attention_of(1).rope.scaling, RopeConfig::Scaling::kYarn);
  EXPECT_EQ(ropes.attention_of(1).rope.original_max_position_embeddings, 256);
  EXPECT_THAT(moe_layers(ropes), ElementsAre(false, true));
  EXPECT_EQ(ropes.num_mtp_layers, 1);
  EXPECT_TRUE(ropes.names_mtp_layers);
  ModelConfig predicting = ropes;
  ASSERT_TRUE(add_prediction_layers(1, &predicting).ok());
  EXPECT_TRUE(predicting.layers.back().is_moe);
  EXPECT_GT(predicting.layers.back().window, 0);
  EXPECT_EQ(predicting.attention_of(2).rope.theta, 1e5);
  EXPECT_FALSE(accepted(small, {{"num_mtp_layers", 1}}).names_mtp_layers);  // none has windows
  predicting = accepted(small, {{"num_mtp_layers", 1},
                                {"mtp_layer_types", {"full_attention"}},
                                {"mtp_mlp_layer_types", {"dense"}}});
  ASSERT_TRUE(add_prediction_layers(1, &predicting).ok());
  EXPECT_FALSE(predicting.layers.back().is_moe);
  EXPECT_EQ(predicting.layers.back().window, 0);
  // One kind of layers needs one rotation.
  const ModelConfig sliding =
      accepted(small, {{"layer_types", {"sliding_attention", "sliding_attention"}},
                       {"rope_parameters", {{"sliding_attention", {{"rope_theta", 1e5}}}}}});
  EXPECT_EQ(sliding.attention_of(0).rope.theta, 1e5);
}

TEST(Families, LayersOfAfmoe) {
  const json small = small_json("afmoe");
  const ModelConfig plain = accepted(small, {{"num_hidden_layers", 4}});
  EXPECT_THAT(windows(plain), ElementsAre(1024, 1024, 1024, 0));
  EXPECT_TRUE(plain.layers[2].rotates);
  EXPECT_FALSE(plain.layers[3].rotates);
  EXPECT_THAT(moe_layers(plain), ElementsAre(false, true, true, true));
  EXPECT_EQ(plain.embedding_scale, 1.0f);
  EXPECT_EQ(plain.shared_intermediate_size, 24);
  EXPECT_TRUE(plain.norms_after);
  EXPECT_EQ(plain.grouped_query.gate, GroupedQueryConfig::Gate::kElements);
  EXPECT_FALSE(plain.grouped_query.gate_softplus);
  EXPECT_EQ(plain.routing.method, RoutingMethod::kDeepseekV3);
  EXPECT_TRUE(plain.routing.selection_bias);
  const ModelConfig other = accepted(small, {{"mup_enabled", true},
                                             {"route_scale", 2.448},
                                             {"num_dense_layers", 0},
                                             {"global_attn_every_n_layers", 2},
                                             {"num_shared_experts", 0},
                                             {"sliding_window", 9}});
  EXPECT_FLOAT_EQ(other.embedding_scale, 5.656854f);
  EXPECT_EQ(other.routing.scaling_factor, 2.448f);
  EXPECT_THAT(moe_layers(other), ElementsAre(true, true));
  EXPECT_THAT(windows(other), ElementsAre(9, 0));
  EXPECT_EQ(other.shared_intermediate_size, 0);
  const auto first = [&](const char* name) {
    return plain.tensor_names.published(name).front().name;
  };
  EXPECT_EQ(first("model.layers.1.post_attention_layernorm.weight"),
            "model.layers.1.pre_mlp_layernorm.weight");
  EXPECT_EQ(first("model.layers.1.mixer_output_norm.weight"),
            "model.layers.1.post_attention_layernorm.weight");
  EXPECT_EQ(first("model.layers.1.mlp.gate.e_score_correction_bias"),
            "model.layers.1.mlp.expert_bias");
}

TEST(Families, LayersOfCohere2Moe) {
  const json small = small_json("cohere2_moe");
  const ModelConfig plain = accepted(small, {{"num_hidden_layers", 5}});
  EXPECT_THAT(windows(plain), ElementsAre(9, 9, 9, 0, 9));
  EXPECT_TRUE(plain.layers[2].rotates);
  EXPECT_FALSE(plain.layers[3].rotates);
  EXPECT_TRUE(plain.rope.interleaved);
  EXPECT_TRUE(plain.parallel_parts);
  EXPECT_TRUE(plain.layer_norms);
  EXPECT_FALSE(plain.norm_bias);
  EXPECT_EQ(plain.rms_norm_eps, 1e-5f);
  EXPECT_TRUE(plain.tie_word_embeddings);
  EXPECT_EQ(plain.logits_scale, 0.0625f);
  EXPECT_EQ(plain.experts_scale, 1.0f);
  EXPECT_EQ(plain.routing.method, RoutingMethod::kRenormalize);
  const ModelConfig other = accepted(small, {{"num_hidden_layers", 4},
                                             {"first_k_dense_replace", 2},
                                             {"prefix_dense_sliding_window_pattern", 2},
                                             {"sliding_window_pattern", 2},
                                             {"prefix_dense_intermediate_size", 40},
                                             {"num_shared_experts", 2},
                                             {"expert_selection_fn", "sigmoid"},
                                             {"norm_topk_prob", false},
                                             {"rms_norm_eps", 1e-3},
                                             {"logit_scale", 1.0}});
  EXPECT_THAT(windows(other), ElementsAre(9, 0, 9, 0));
  EXPECT_FALSE(other.layers[1].rotates);
  EXPECT_THAT(moe_layers(other), ElementsAre(false, false, true, true));
  EXPECT_EQ(other.dense_intermediate_size, 40);
  EXPECT_EQ(other.shared_intermediate_size, 48);
  EXPECT_EQ(other.experts_scale, 0.5f);
  EXPECT_EQ(other.routing.method, RoutingMethod::kLlama4);
  EXPECT_FALSE(other.routing.normalize);
  EXPECT_FALSE(other.layer_norms);
  EXPECT_EQ(other.rms_norm_eps, 1e-3f);
  const ModelConfig sum = accepted(small, {{"first_k_dense_replace", 1},
                                           {"num_shared_experts", 1},
                                           {"shared_expert_combination_strategy", "sum"}});
  EXPECT_EQ(sum.experts_scale, 1.0f);
  EXPECT_THAT(windows(sum), ElementsAre(0, 9));  // the dense layer rotates nevertheless
  EXPECT_TRUE(sum.layers[0].rotates);
}

// Sizes under names of its own, in two objects; matrices in larger ones.
TEST(Families, PartsOfDbrx) {
  json small = small_json("dbrx");
  json usual = small;
  for (const auto& [own, name] :
       std::map<std::string, std::string>{{"d_model", "hidden_size"},
                                          {"n_layers", "num_hidden_layers"},
                                          {"n_heads", "num_attention_heads"},
                                          {"max_seq_len", "max_position_embeddings"}}) {
    usual[name] = usual[own];
    usual.erase(own);
  }
  EXPECT_EQ(complaint(usual), "");
  const ModelConfig config = *parse(small);
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.max_position_embeddings, 256);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_TRUE(config.layer_norms);
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_EQ(config.moe_intermediate_size, 12);
  EXPECT_EQ(config.routing.method, RoutingMethod::kRenormalizeNaive);
  EXPECT_EQ(config.routing.norm_power, 1.0f);
  small["attn_config"]["clip_qkv"] = 8;
  small["ffn_config"]["moe_normalize_expert_weights"] = nullptr;
  const ModelConfig other = *parse(small);
  EXPECT_EQ(other.grouped_query.clip, 8.0f);
  EXPECT_EQ(other.routing.method, RoutingMethod::kDefault);
  const auto first = [&](const char* name) { return config.tensor_names.published(name).front(); };
  const auto values = first("model.layers.1.self_attn.v_proj.weight");
  EXPECT_EQ(values.name, "transformer.blocks.1.norm_attn_norm.attn.Wqkv.weight");
  EXPECT_EQ(values.part.first, 48);
  EXPECT_EQ(values.part.total, 64);
  EXPECT_EQ(first("model.layers.1.mlp.gate.weight").name,
            "transformer.blocks.1.ffn.router.layer.weight");
  EXPECT_TRUE(first("model.layers.1.mlp.experts.3.down_proj.weight").part.transposed);
  EXPECT_EQ(first("model.layers.1.mlp.experts.3.down_proj.weight").expert, 3);
}

TEST(Families, RotationOfPhimoe) {
  const json small = small_json("phimoe");
  const ModelConfig plain = *parse(small);
  EXPECT_TRUE(plain.layer_norms);
  EXPECT_TRUE(plain.norm_bias);
  EXPECT_FALSE(plain.head_bias);
  EXPECT_EQ(plain.rope.theta, 1e6);
  EXPECT_EQ(plain.routing.method, RoutingMethod::kSparseMixer);
  EXPECT_EQ(plain.routing.sparse_distance, 0.02f);
  const json scaling = {{"type", "longrope"},
                        {"short_factor", {1.0, 2.0, 3.0, 4.0}},
                        {"long_factor", {5.0, 6.0, 7.0, 8.0}},
                        {"short_mscale", 1.25},
                        {"long_mscale", 1.5},
                        {"original_max_position_embeddings", 64}};
  const ModelConfig all = accepted(small, {{"rope_scaling", scaling}});
  EXPECT_THAT(all.rope.divisors, ElementsAre(5.0f, 6.0f, 7.0f, 8.0f));
  EXPECT_EQ(all.rope.attention_factor, 1.5);
  EXPECT_THAT(all.notes, ElementsAre(HasSubstr("long_factor and long_mscale hold for texts of any "
                                               "length")));
  const ModelConfig short_texts =
      accepted(small, {{"rope_scaling", scaling}, {"max_position_embeddings", 64}});
  EXPECT_THAT(short_texts.rope.divisors, ElementsAre(1.0f, 2.0f, 3.0f, 4.0f));
  EXPECT_EQ(short_texts.rope.attention_factor, 1.25);
  EXPECT_TRUE(short_texts.notes.empty());
}

TEST(Families, HeadsOfLaguna) {
  using Gate = GroupedQueryConfig::Gate;
  const json small = small_json("laguna");
  const ModelConfig plain = *parse(small);
  EXPECT_EQ(plain.grouped_query.rotary_dim, 4);
  EXPECT_EQ(plain.grouped_query.gate, Gate::kHeads);
  EXPECT_TRUE(plain.grouped_query.gate_softplus);
  EXPECT_THAT(moe_layers(plain), ElementsAre(false, true));
  EXPECT_EQ(plain.shared_intermediate_size, 512);
  EXPECT_EQ(plain.routing.logits_cap, 0.0f);
  const ModelConfig other = accepted(
      small, {{"num_hidden_layers", 4},
              {"layer_types",
               {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
              {"num_attention_heads_per_layer", {6, 4, 6, 2}},
              {"gating", "per-element"},
              {"gating_types", {"per-element", "per_element", "per_element", "per_element"}},
              {"moe_routed_scaling_factor", 2.5},
              {"moe_router_logit_softcapping", 3.0},
              {"mlp_layer_types", {"sparse", "sparse", "dense", "sparse"}}});
  EXPECT_EQ(other.num_attention_kinds(), 3);
  std::vector<int> heads, rotated;
  for (int layer = 0; layer < 4; ++layer) {
    heads.push_back(other.attention_of(layer).num_heads);
    rotated.push_back(other.attention_of(layer).options.rotary_dim);
  }
  EXPECT_THAT(heads, ElementsAre(6, 4, 6, 2));
  EXPECT_THAT(rotated, ElementsAre(8, 4, 8, 4));
  EXPECT_EQ(other.attention_of(0).rope.theta, 1e4);
  EXPECT_EQ(other.attention_of(3).rope.theta, 5e5);
  EXPECT_EQ(other.num_heads, 6);
  EXPECT_EQ(other.grouped_query.gate, Gate::kElements);
  EXPECT_EQ(other.routing.scaling_factor, 2.5f);
  EXPECT_EQ(other.routing.logits_cap, 3.0f);
  EXPECT_THAT(moe_layers(other), ElementsAre(true, true, false, true));
  EXPECT_EQ(
      other.tensor_names.published("model.layers.1.mlp.gate.e_score_correction_bias").front().name,
      "model.layers.1.mlp.experts.e_score_correction_bias");
}

TEST(Families, BlocksOfMinimaxM3) {
  const json small = small_json("minimax_m3_vl_text");
  const ModelConfig plain = *parse(small);
  EXPECT_EQ(plain.grouped_query.blocks.head_dim, 0);
  EXPECT_EQ(plain.attention_of(0).options.blocks.head_dim, 0);
  const BlockIndexerConfig blocks = plain.attention_of(1).options.blocks;
  EXPECT_EQ(blocks.head_dim, 128);
  EXPECT_EQ(blocks.block, 128);
  EXPECT_EQ(blocks.top_k, 16);
  EXPECT_EQ(blocks.nearest, 1);
  EXPECT_EQ(plain.first_choice(), 2048);
  EXPECT_THAT(moe_layers(plain), ElementsAre(true, true));
  EXPECT_EQ(plain.dense_intermediate_size, 12288);
  EXPECT_EQ(plain.shared_intermediate_size, 3072);
  EXPECT_EQ(plain.routing.scaling_factor, 2.0f);
  EXPECT_TRUE(plain.norms_add_one);
  json published = small;
  published.erase("layer_types");
  published.erase("index_n_heads");
  const ModelConfig other = accepted(published, {{"moe_layer_freq", {0, 1}},
                                                 {"hidden_act", "swigluoai"},
                                                 {"sparse_attention_config",
                                                  {{"use_sparse_attention", true},
                                                   {"sparse_num_index_heads", 2},
                                                   {"sparse_index_dim", 16},
                                                   {"sparse_block_size", 64},
                                                   {"sparse_topk_blocks", 3},
                                                   {"sparse_local_block", 2},
                                                   {"sparse_attention_freq", {1, 0}},
                                                   {"sparse_disable_index_value", {1, 0}}}}});
  EXPECT_EQ(other.attention_of(0).options.blocks.top_k, 3);
  EXPECT_EQ(other.attention_of(0).options.blocks.nearest, 2);
  EXPECT_EQ(other.attention_of(1).options.blocks.head_dim, 0);
  EXPECT_EQ(other.first_choice(), 192);
  EXPECT_THAT(moe_layers(other), ElementsAre(false, true));
  // Without sparse layers the sizes of the indexer have no effect.
  EXPECT_EQ(accepted(small, {{"layer_types", nullptr}, {"index_n_heads", 4}}).first_choice(), 0);
}

TEST(Families, KindsOfMimo) {
  const json small = small_json("mimo_v2_flash");
  const ModelConfig plain = accepted(small, {{"num_hidden_layers", 7}});
  EXPECT_THAT(windows(plain), ElementsAre(0, 129, 129, 129, 129, 0, 129));
  const AttentionKind full = plain.attention_of(0), sliding = plain.attention_of(1);
  EXPECT_EQ(full.num_kv_heads, 2);
  EXPECT_EQ(sliding.num_kv_heads, 4);
  EXPECT_EQ(full.value_dim, 6);
  EXPECT_EQ(sliding.value_dim, 6);
  EXPECT_FALSE(full.options.sinks);
  EXPECT_TRUE(sliding.options.sinks);
  EXPECT_EQ(full.rope.theta, 5e6);
  EXPECT_EQ(sliding.rope.theta, 1e4);
  EXPECT_EQ(full.options.rotary_dim, 2);
  EXPECT_EQ(full.options.value_scale, 0.707f);
  EXPECT_EQ(sliding.options.value_scale, 0.707f);
  EXPECT_THAT(moe_layers(plain), ElementsAre(false, true, true, true, true, true, true));
  const ModelConfig other = accepted(
      small,
      {{"attention_value_scale", nullptr},
       {"routed_scaling_factor", nullptr},
       {"n_shared_experts", nullptr},
       {"sliding_window", 128},
       {"sliding_window_size", 128},
       {"hybrid_layer_pattern", {0, 1, 1}},
       {"moe_layer_freq", {0, 1, 1}},
       {"partial_rotary_factor", 0.334},
       {"attention_chunk_size", 128},
       {"rope_parameters",
        {{"full_attention", {{"rope_theta", 1e3}}},
         {"sliding_attention", {{"rope_type", "yarn"}, {"rope_theta", 1e3}, {"factor", 2.0}}}}}});
  EXPECT_THAT(windows(other), ElementsAre(0, 129));
  EXPECT_EQ(other.grouped_query.value_scale, 1.0f);
  EXPECT_EQ(other.routing.scaling_factor, 1.0f);
  // What transformers assumes depends on the type.
  EXPECT_EQ(other.attention_of(0).options.rotary_dim, 2);
  EXPECT_EQ(other.attention_of(1).options.rotary_dim, 8);
  EXPECT_THAT(other.notes, testing::IsEmpty());
}

TEST(Families, KindsOfStep) {
  json small = small_json("step3p5");
  const ModelConfig plain = *parse(small);
  EXPECT_TRUE(plain.norms_add_one);
  EXPECT_EQ(plain.grouped_query.gate, GroupedQueryConfig::Gate::kHeads);
  EXPECT_FALSE(plain.grouped_query.gate_softplus);
  EXPECT_EQ(plain.rope.theta, 1e4);
  EXPECT_EQ(plain.expert_activation(1).kind, kernels::Activation::Kind::kSilu);
  small.erase("mlp_layer_types");
  const json words = {"full_attention", "sliding_attention", "sliding_attention"};
  const ModelConfig listed = accepted(
      small,
      {{"layer_types", words},
       {"sliding_window", 8},
       {"num_nextn_predict_layers", 1},
       {"rope_theta", {5e6, 1e4, 1e4}},
       {"partial_rotary_factors", {0.5, 1.0, 1.0}},
       {"rope_scaling",
        {{"rope_type", "llama3"},
         {"factor", 2.0},
         {"low_freq_factor", 1.0},
         {"high_freq_factor", 32.0},
         {"original_max_position_embeddings", 64}}},
       {"attention_other_setting", {{"num_attention_heads", 6}, {"num_attention_groups", 2}}},
       {"moe_layers_enum", "1,2"},
       {"swiglu_limits", {0.0, 7.0, 0.0}},
       {"swiglu_limits_shared", {nullptr, 16.0, 0.0}},
       {"query_pre_attn_scalar", 4}});
  EXPECT_THAT(moe_layers(listed), ElementsAre(false, true));
  const AttentionKind full = listed.attention_of(0), sliding = listed.attention_of(1);
  EXPECT_EQ(full.num_heads, 4);
  EXPECT_EQ(sliding.num_heads, 6);
  EXPECT_EQ(full.rope.scaling, RopeConfig::Scaling::kLlama3);
  EXPECT_EQ(full.rope.theta, 5e6);
  EXPECT_EQ(sliding.rope.scaling, RopeConfig::Scaling::kNone);
  EXPECT_EQ(sliding.rope.theta, 1e4);
  EXPECT_EQ(full.options.rotary_dim, 4);
  EXPECT_EQ(sliding.options.rotary_dim, 8);
  EXPECT_EQ(sliding.options.scale, 0.5f);
  EXPECT_EQ(listed.expert_activation(0).kind, kernels::Activation::Kind::kSilu);
  EXPECT_EQ(listed.expert_activation(1).kind, kernels::Activation::Kind::kLimitedSilu);
  EXPECT_EQ(listed.expert_activation(1).limit, 7.0f);
  EXPECT_EQ(listed.mlp_activation(1).limit, 16.0f);
  EXPECT_EQ(listed.num_mtp_layers, 1);
  EXPECT_THAT(listed.notes, testing::IsEmpty());
  // As transformers saves it.
  const ModelConfig saved =
      accepted(small, {{"layer_types", {"full_attention", "sliding_attention"}},
                       {"sliding_window", 8},
                       {"num_sliding_attention_heads", 6},
                       {"per_layer_config", {{"1", {{"num_attention_heads", 6}}}}},
                       {"rope_parameters",
                        {{"full_attention", {{"rope_theta", 1e6}, {"partial_rotary_factor", 0.5}}},
                         {"sliding_attention", {{"rope_theta", 1e4}}}}}});
  EXPECT_EQ(saved.attention_of(1).num_heads, 6);
  EXPECT_EQ(saved.attention_of(0).options.rotary_dim, 4);
  EXPECT_EQ(saved.attention_of(1).options.rotary_dim, 8);
  const auto expert =
      saved.tensor_names.published("model.layers.1.mlp.experts.3.up_proj.weight").front();
  EXPECT_EQ(expert.name, "model.layers.1.moe.up_proj.weight");
  EXPECT_EQ(expert.expert, 3);
}

// mlp_layer_types decides in families that transformers reads so.
TEST(Families, DenseLayersByWord) {
  for (const char* family : {"glm4_moe_lite", "deepseek_v32", "glm_moe_dsa", "hy_v3"}) {
    EXPECT_THAT(
        moe_layers(accepted(small_json(family), {{"mlp_layer_types", {"sparse", "dense"}}})),
        ElementsAre(true, false))
        << family;
  }
}

TEST(Families, OptionsOfAttention) {
  using Norm = GroupedQueryConfig::Norm;
  const GroupedQueryConfig olmoe =
      accepted(small_json("olmoe"), {{"clip_qkv", 8.0}, {"attention_bias", true}}).grouped_query;
  EXPECT_EQ(olmoe.norm, Norm::kAllHeads);
  EXPECT_EQ(olmoe.clip, 8.0f);
  EXPECT_TRUE(olmoe.output_bias);
  const GroupedQueryConfig glm =
      accepted(small_json("glm4_moe"), {{"use_qk_norm", true}, {"attention_bias", true}})
          .grouped_query;
  EXPECT_EQ(glm.norm, Norm::kHead);
  EXPECT_EQ(glm.rotary_dim, 6);
  EXPECT_TRUE(glm.qkv_bias);
  EXPECT_FALSE(glm.output_bias);
  const GroupedQueryConfig minimax =
      accepted(small_json("minimax_m2"), {{"rotary_dim", 4}}).grouped_query;
  EXPECT_EQ(minimax.norm, Norm::kAllHeads);
  EXPECT_EQ(minimax.rotary_dim, 4);
  const GroupedQueryConfig hunyuan = parse(small_json("hunyuan_v1_moe"))->grouped_query;
  EXPECT_TRUE(hunyuan.norm_after_rotation);
  EXPECT_FALSE(hunyuan.norm_rotated_only);
  EXPECT_TRUE(parse(small_json("qwen2_moe"))->grouped_query.qkv_bias);
  EXPECT_TRUE(parse(small_json("gpt_oss"))->grouped_query.sinks);
  EXPECT_TRUE(parse(small_json("qwen3_next"))->grouped_query.output_gate);
  EXPECT_TRUE(parse(small_json("glm_moe_dsa"))->indexer.rotates_interleaved);
  EXPECT_FALSE(parse(small_json("deepseek_v32"))->indexer.rotates_interleaved);
}

TEST(Families, ScalesOfGranite) {
  const ModelConfig config =
      accepted(small_json("granitemoeshared"), {{"embedding_multiplier", 12.0},
                                                {"residual_multiplier", 0.22},
                                                {"attention_multiplier", 0.0156},
                                                {"logits_scaling", 8.0},
                                                {"shared_intermediate_size", 20}});
  EXPECT_EQ(config.embedding_scale, 12.0f);
  EXPECT_EQ(config.residual_scale, 0.22f);
  EXPECT_EQ(config.grouped_query.scale, 0.0156f);
  EXPECT_EQ(config.logits_scale, 0.125f);
  EXPECT_EQ(config.shared_intermediate_size, 20);
  EXPECT_EQ(parse(small_json("granitemoe"))->grouped_query.scale, 1.0f);
}

TEST(Families, Routing) {
  const auto method = [](const char* family) { return parse(small_json(family))->routing.method; };
  EXPECT_EQ(method("deepseek_v2"), RoutingMethod::kDeepseekV2);
  for (const char* family : {"glm4_moe", "dots1", "exaone_moe", "hy_v3", "solar_open"}) {
    EXPECT_EQ(method(family), RoutingMethod::kDeepseekV3) << family;
  }
  EXPECT_FLOAT_EQ(parse(small_json("hy_v3"))->routing.scaling_factor, 2.826f);
  EXPECT_FLOAT_EQ(
      accepted(small_json("hy_v3"), {{"router_scaling_factor", 1.5}}).routing.scaling_factor, 1.5f);
  EXPECT_FALSE(parse(small_json("dots1"))->routing.normalize);
  EXPECT_TRUE(accepted(small_json("dots1"), {{"norm_topk_prob", true}}).routing.normalize);
  EXPECT_EQ(method("llama4_text"), RoutingMethod::kLlama4);
  EXPECT_EQ(method("minimax_m2"), RoutingMethod::kMinimax2);
  EXPECT_EQ(method("ernie4_5_moe"), RoutingMethod::kErnie);
  EXPECT_EQ(method("olmoe"), RoutingMethod::kDefault);
  EXPECT_EQ(method("qwen2_moe"), RoutingMethod::kDefault);
  for (const char* family :
       {"mixtral", "gpt_oss", "granitemoe", "hunyuan_v1_moe", "qwen3_next", "qwen3_5_moe_text"}) {
    EXPECT_EQ(method(family), RoutingMethod::kRenormalize) << family;
  }
  const RoutingConfig lfm2 =
      accepted(small_json("lfm2_moe"), {{"use_expert_bias", false}, {"routed_scaling_factor", 2.0}})
          .routing;
  EXPECT_EQ(lfm2.method, RoutingMethod::kDeepseekV3);
  EXPECT_FALSE(lfm2.selection_bias);
  EXPECT_EQ(lfm2.epsilon, 1e-6f);
  EXPECT_EQ(lfm2.scaling_factor, 2.0f);
  EXPECT_EQ(accepted(small_json("ernie4_5_moe"), {{"moe_norm_min", 0.5}}).routing.epsilon, 0.5f);
  // DeepSeek-V2 never divides by the sum, whatever the file says.
  const ModelConfig v2 = accepted(small_json("deepseek_v2"), {{"norm_topk_prob", true}});
  EXPECT_FALSE(v2.routing.normalize);
  EXPECT_THAT(v2.notes, ElementsAre(HasSubstr("norm_topk_prob: true has no effect")));
}

TEST(Families, PublishedNames) {
  const auto first = [](const char* family, const std::string& name) {
    return parse(small_json(family))->tensor_names.published("model.layers.1." + name).front().name;
  };
  const std::string expert = "mlp.experts.3.up_proj.weight";
  EXPECT_EQ(first("mixtral", expert), "model.layers.1.block_sparse_moe.experts.3.w3.weight");
  EXPECT_EQ(first("minimax_m2", "mlp.gate.e_score_correction_bias"),
            "model.layers.1.block_sparse_moe.e_score_correction_bias");
  EXPECT_EQ(first("gemma4_text", expert), "model.layers.1.experts.3.up_proj.weight");
  EXPECT_EQ(first("gemma4_text", "mlp.up_proj.weight"), "model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(first("gemma4_text", "mlp.gate.norm.weight"), "model.layers.1.router.scale");
  EXPECT_EQ(first("gemma4_text", "mlp.gate.weight"), "model.layers.1.router.proj.weight");
  EXPECT_EQ(first("gemma4_text", "post_attention_layernorm.weight"),
            "model.layers.1.pre_feedforward_layernorm.weight");
  EXPECT_EQ(first("gemma4_text", "mixer_output_norm.weight"),
            "model.layers.1.post_attention_layernorm.weight");
  EXPECT_EQ(first("gpt_oss", "mlp.gate.bias"), "model.layers.1.mlp.router.bias");
  EXPECT_EQ(first("granitemoe", expert), "model.layers.1.block_sparse_moe.input_linear.weight");
  EXPECT_EQ(first("granitemoeshared", "mlp.shared_experts.up_proj.weight"),
            "model.layers.1.shared_mlp.input_linear.weight");
  EXPECT_EQ(first("ernie4_5_moe", "mlp.gate.e_score_correction_bias"),
            "model.layers.1.mlp.moe_statics.e_score_correction_bias");
  EXPECT_EQ(first("hunyuan_v1_moe", "mlp.gate.weight"), "model.layers.1.mlp.gate.wg.weight");
  EXPECT_EQ(first("hunyuan_v1_moe", "self_attn.q_norm.weight"),
            "model.layers.1.self_attn.query_layernorm.weight");
  EXPECT_EQ(first("kimi_linear", expert), "model.layers.1.block_sparse_moe.experts.3.w3.weight");
  EXPECT_EQ(first("kimi_linear", "mlp.gate.e_score_correction_bias"),
            "model.layers.1.block_sparse_moe.gate.e_score_correction_bias");
  EXPECT_EQ(first("bailing_hybrid", "self_attn.o_proj.weight"),
            "model.layers.1.attention.dense.weight");
  EXPECT_EQ(first("bailing_hybrid", "self_attn.A_log"), "model.layers.1.attention.A_log");
  EXPECT_EQ(first("deepseek_v4", "self_attn.compressor.indexer.gate_proj.weight"),
            "model.layers.1.attn.indexer.compressor.wgate.weight");
  EXPECT_EQ(first("deepseek_v4", "attn_hc.base"), "model.layers.1.hc_attn_base");
  EXPECT_EQ(first("glm5_next", "ffn_hc.fn"), "model.layers.1.hc_ffn_fn");
  EXPECT_EQ(first("glm5_next", "self_attn.indexer.gate_proj.weight"),
            "model.layers.1.self_attn.indexer.index_kpool_compress_gate");
  EXPECT_EQ(first("deepseek_v4", expert), "model.layers.1.ffn.experts.3.w3.weight");
  EXPECT_EQ(first("lfm2_moe", "post_attention_layernorm.weight"), "model.layers.1.ffn_norm.weight");
  EXPECT_EQ(first("lfm2_moe", "mlp.gate.e_score_correction_bias"),
            "model.layers.1.feed_forward.expert_bias");
  EXPECT_EQ(first("lfm2_moe", "mlp.down_proj.weight"), "model.layers.1.feed_forward.w2.weight");
  EXPECT_EQ(first("llama4_text", "mlp.gate.weight"), "model.layers.1.feed_forward.router.weight");
  EXPECT_EQ(first("llama4_text", "mlp.shared_experts.up_proj.weight"),
            "model.layers.1.feed_forward.shared_expert.up_proj.weight");
  EXPECT_EQ(first("llama4_text", "mlp.up_proj.weight"),
            "model.layers.1.feed_forward.up_proj.weight");
  EXPECT_EQ(first("hy_v3", "mlp.gate.weight"), "model.layers.1.mlp.router.gate.weight");
  EXPECT_EQ(first("hy_v3", "mlp.gate.e_score_correction_bias"), "model.layers.1.mlp.expert_bias");
  EXPECT_EQ(first("hy_v3", "mlp.shared_experts.up_proj.weight"),
            "model.layers.1.mlp.shared_mlp.up_proj.weight");
  EXPECT_EQ(first("hy_v3", "shared_head.norm.weight"), "model.layers.1.final_layernorm.weight");
  EXPECT_EQ(first("qwen2_moe", "mlp.shared_experts.up_proj.weight"),
            "model.layers.1.mlp.shared_expert.up_proj.weight");
}

// What transformers computes of a file that leaves keys out.
TEST(Families, NormsAndThetaByDefault) {
  const ModelConfig gpt = *parse(small_json("gpt_oss"));
  EXPECT_EQ(gpt.rms_norm_eps, 1e-5f);
  EXPECT_EQ(gpt.rope.scaling, RopeConfig::Scaling::kYarn);
  EXPECT_EQ(gpt.rope.factor, 32.0);
  EXPECT_FALSE(gpt.rope.truncate);
  EXPECT_DOUBLE_EQ(gpt.rope.attention_factor, 1.3465735902799727);
  const std::pair<const char*, double> thetas[] = {
      {"mixtral", 1e6}, {"gpt_oss", 150000},   {"minimax_m2", 5e6}, {"llama4_text", 5e5},
      {"olmoe", 1e4},   {"ernie4_5_moe", 5e5}, {"lfm2_moe", 1e6},   {"qwen3_next", 1e4},
      {"dots1", 1e4},   {"exaone_moe", 1e4},   {"hy_v3", 11158840}, {"solar_open", 1e6}};
  for (const auto& [family, theta] : thetas) {
    EXPECT_EQ(parse(small_json(family))->rope.theta, theta) << family;
  }
}

// theta · alpha^(d / (d − 2)), d = 8.
TEST(Families, AlphaOfHunyuanIsALargerTheta) {
  json config = small_json("hunyuan_v1_moe");
  config["rope_scaling"] = {{"type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}};
  EXPECT_DOUBLE_EQ(accepted(config, {}).rope.theta, 1e8);
  EXPECT_EQ(accepted(config, {}).rope.scaling, RopeConfig::Scaling::kNone);
  config["rope_theta"] = 500;
  EXPECT_DOUBLE_EQ(accepted(config, {}).rope.theta, 5e6);
  config["rope_scaling"]["rope_theta"] = 400;
  EXPECT_EQ(complaint(config),
            "config.json: rope_scaling.rope_theta: found 400 and, elsewhere in the file, 500; give "
            "one");
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
  const auto compressed = [](const char* format, json weights) {
    return json{{"quant_method", "compressed-tensors"},
                {"format", format},
                {"config_groups", {{"group_0", {{"weights", std::move(weights)}}}}}};
  };
  const json floats = {{"num_bits", 8}, {"type", "float"}, {"symmetric", true}};
  json blocks = floats, narrow = floats, zeros = {{"num_bits", 4}, {"type", "int"}};
  blocks["block_structure"] = {64, 128};
  narrow["block_structure"] = {16, 32};
  zeros["symmetric"] = false;
  json mixed = compressed("mixed-precision", floats);
  mixed["config_groups"]["group_0"]["format"] = "float-quantized";
  mixed["config_groups"]["group_1"] = {{"format", "pack-quantized"}, {"weights", zeros}};
  using enum kernels::WeightFormat;
  const auto modelopt = [](const char* algorithm) {
    return json{{"quant_method", "modelopt"}, {"quant_algo", algorithm}};
  };
  const Quantization all[] = {
      {{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}, kFp8},
      {{{"quant_method", "fp8"}, {"fmt", "float8_e4m3fn"}, {"scale_fmt", "ue8m0"}}, kFp8},
      {{{"quant_method", "fp8"}, {"weight_block_size", {1, 32}}}, kBf16},
      {packed(8), kInt8},
      {packed(4), kInt4},
      {compressed("pack-quantized", zeros), kInt8},
      {compressed("float-quantized", floats), kFp8},
      {compressed("naive-quantized", blocks), kFp8},
      {compressed("float-quantized", narrow), kBf16},
      {compressed("nvfp4-pack-quantized", floats), kNvfp4},
      {compressed("mxfp4-pack-quantized", floats), kMxfp4},
      {compressed("mxfp8-quantized", floats), kBf16},
      {mixed, kFp8},
      {modelopt("NVFP4"), kNvfp4},
      {modelopt("FP8"), kFp8},
      {modelopt("FP8_PB_WO"), kFp8},
      {{{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}}, kMxfp4},
      {{{"quant_method", "gptq"}, {"bits", 4}, {"sym", true}, {"desc_act", false}}, kInt4},
      {{{"quant_method", "gptq"}, {"bits", 4}, {"sym", false}}, kInt8},
      {{{"quant_method", "gptq"}, {"bits", 8}, {"checkpoint_format", "gptq"}}, kInt8},
      {{{"quant_method", "awq"}, {"bits", 4}, {"version", "GEMM"}}, kInt8},
      {{{"quant_method", "auto-round"}, {"bits", 4}, {"packing_format", "auto_round:auto_gptq"}},
       kInt4},
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
  const auto group = [](const char* format, json weights) {
    return json{{"quant_method", "compressed-tensors"},
                {"format", format},
                {"config_groups", {{"group_0", {{"weights", std::move(weights)}}}}}};
  };
  const std::pair<json, const char*> all[] = {
      {{{"quant_method", "fp8"}, {"weight_block_size", {128, 96}}},
       "weight_block_size: expected two powers of two, rows and columns, found [128, 96]"},
      {{{"quant_method", "fp8"}, {"fmt", "e5m2"}},
       "fmt: expected e4m3 or float8_e4m3fn, found e5m2"},
      {{{"quant_method", "modelopt"}, {"quant_algo", "W4A16_AWQ"}},
       "quant_algo: expected NVFP4 or W4A16_NVFP4 or FP8"},
      {group("marlin-24", {}), "format: expected pack-quantized or int-quantized"},
      {group("pack-quantized", {{"num_bits", 3}, {"symmetric", true}}),
       "num_bits: expected 4 or 8, found 3"},
      {group("float-quantized", {{"type", "float"}, {"symmetric", false}}),
       "symmetric: expected true, found false"},
      {{{"quant_method", "gptq"}, {"bits", 3}}, "bits: expected 4 or 8, found 3"},
      {{{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "gptq_v2"}},
       "checkpoint_format: expected gptq, found gptq_v2"},
      {{{"quant_method", "awq"}, {"bits", 4}, {"version", "gemv"}},
       "version: expected gemm, found gemv"},
      {{{"quant_method", "bitsandbytes"}}, "quant_method bitsandbytes is not supported"},
  };
  for (const auto& [quantization, expected] : all) {
    json config = golden_json("qwen3_gqa");
    config["quantization_config"] = quantization;
    EXPECT_THAT(complaint(config), testing::HasSubstr(expected));
  }
}

TEST(Config, HfQuantConfigBesideAConfigWithoutQuantization) {
  const base::ScratchDirectory scratch;
  json config = golden_json("qwen3_gqa");
  const auto write = [&](const char* file, const json& value) {
    ASSERT_TRUE(formats::write_file(scratch.file(file), value.dump()).ok());
  };
  write("config.json", config);
  write("hf_quant_config.json",
        {{"producer", {{"name", "modelopt"}}},
         {"quantization", {{"quant_algo", "FP8"}, {"exclude_modules", {"lm_head"}}}}});
  EXPECT_EQ(read_model_config(scratch.path())->stored_format, kernels::WeightFormat::kFp8);
  write("hf_quant_config.json", {{"quantization", {{"quant_algo", "W4A8_AWQ"}}}});
  EXPECT_THAT(read_model_config(scratch.path()).status().message(),
              testing::HasSubstr("hf_quant_config.json: quantization.quant_algo: expected NVFP4"));
  // quantization_config comes first.
  config["quantization_config"] = {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
  write("config.json", config);
  EXPECT_EQ(read_model_config(scratch.path())->stored_format, kernels::WeightFormat::kNvfp4);
}

}  // namespace
}  // namespace wideep::model
