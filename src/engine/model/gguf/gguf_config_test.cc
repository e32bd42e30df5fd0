// SPDX-License-Identifier: Apache-2.0
//
// Metadata is built in memory and changed in one key at a time; files that llama.cpp has converted
// are in gguf_golden_test.cc. Divisors of rotary frequencies are held against the angles that they
// must give. What would change results and is not computed must be refused under the key of the
// file, for its user has no config.json to look into.
#include "model/gguf/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/gguf/gguf_tensors.h"
#include "model/parts/rope.h"
#include "tensor_files/gguf_testing.h"

namespace wideep::model {
namespace {

using tensor_files::GgufBuilder;
using tensor_files::GgufFile;
using tensor_files::GgufFiles;
using testing::HasSubstr;

// A small model of the architecture "llama" without tensors but the embedding.
GgufBuilder mixtral() {
  GgufBuilder builder;
  builder.string("general.architecture", "llama")
      .integer("llama.block_count", 2)
      .integer("llama.context_length", 64)
      .integer("llama.embedding_length", 32)
      .integer("llama.feed_forward_length", 16)
      .integer("llama.attention.head_count", 4)
      .integer("llama.attention.head_count_kv", 2)
      .number("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .integer("llama.expert_count", 4)
      .integer("llama.expert_used_count", 2)
      .floats("token_embd.weight", {8, 32}, std::vector<float>(256));
  return builder;
}

// Keeps the bytes that the files point to.
struct Parsed {
  explicit Parsed(const GgufBuilder& builder) : bytes(builder.file()) {
    auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "m");
    EXPECT_TRUE(file.ok()) << file.status().message();
    files.emplace(std::move(*file));
  }
  std::string bytes;
  std::optional<GgufFiles> files;
};

std::string error_of(const GgufBuilder& builder) {
  const Parsed parsed(builder);
  const auto config = read_gguf_config(*parsed.files);
  EXPECT_FALSE(config.ok());
  if (config.ok()) return "";
  EXPECT_EQ(config.status().exit_code(), 2);
  EXPECT_EQ(config.status().message().find('\n'), std::string::npos);
  return config.status().message();
}

TEST(GgufConfig, IsThatOfTheFamily) {
  const Parsed parsed(mixtral()
                          .integer("tokenizer.ggml.eos_token_id", 2)
                          .integer("tokenizer.ggml.eot_token_id", 5));
  const auto config = read_gguf_config(*parsed.files);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->family, "mixtral");
  EXPECT_EQ(config->vocab_size, 8);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->routing.num_experts, 4);
  EXPECT_EQ(config->rms_norm_eps, 1e-5f);
  EXPECT_EQ(config->rope.theta, 10000.0);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->eos_token_ids, (std::vector<int>{2, 5}));
}

// Weights of a softmax that are divided by their sum are Mistral's, not DeepSeek-V2's; queries are
// scaled where the file says it.
TEST(GgufConfig, SoftmaxRoutersOfDeepseek2) {
  const auto latent = [] {
    GgufBuilder builder;
    builder.string("general.architecture", "deepseek2");
    for (const auto& [key, value] : std::map<std::string, int>{{"block_count", 2},
                                                               {"context_length", 256},
                                                               {"embedding_length", 32},
                                                               {"feed_forward_length", 24},
                                                               {"attention.head_count", 4},
                                                               {"attention.kv_lora_rank", 12},
                                                               {"attention.key_length_mla", 20},
                                                               {"attention.value_length_mla", 12},
                                                               {"rope.dimension_count", 8},
                                                               {"expert_count", 8},
                                                               {"expert_used_count", 2},
                                                               {"expert_shared_count", 1},
                                                               {"expert_feed_forward_length", 12},
                                                               {"expert_gating_func", 1}}) {
      builder.integer("deepseek2." + key, value);
    }
    return builder.number("deepseek2.attention.layer_norm_rms_epsilon", 1e-6f)
        .floats("token_embd.weight", {8, 32}, std::vector<float>(256));
  };
  const auto config_of = [](const GgufBuilder& builder) {
    const Parsed parsed(builder);
    const auto config = read_gguf_config(*parsed.files);
    EXPECT_TRUE(config.ok()) << config.status().message();
    return config.ok() ? *config : ModelConfig();
  };
  EXPECT_EQ(config_of(latent()).family, "deepseek_v2");
  const ModelConfig plain = config_of(latent().boolean("deepseek2.expert_weights_norm", true));
  EXPECT_EQ(plain.family, "mistral4");
  EXPECT_EQ(plain.latent_temperature, 0.0f);
  const auto scaled = [&](int length) {
    return latent()
        .boolean("deepseek2.expert_weights_norm", true)
        .string("deepseek2.rope.scaling.type", "yarn")
        .number("deepseek2.rope.scaling.factor", 4.0f)
        .integer("deepseek2.rope.scaling.original_context_length", 64)
        .number("deepseek2.rope.scaling.yarn_log_multiplier", 0.1f)
        .number("deepseek2.attention.temperature_scale", 0.25f)
        .integer("deepseek2.attention.temperature_length", length);
  };
  const ModelConfig large = config_of(scaled(64));
  EXPECT_EQ(large.latent_temperature, 0.25f);
  EXPECT_EQ(large.latent_temperature_floor, 64.0f);
  EXPECT_THAT(large.notes, testing::IsEmpty());
  EXPECT_THAT(error_of(scaled(32)), HasSubstr("rope_scaling.temperature_length ("
                                              "deepseek2.attention.temperature_length): "));
}

// The architecture llama is Mixtral's with experts, and Llama's without.
TEST(GgufConfig, DenseModelsHaveNoExperts) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    const auto key = [&](const char* name) { return std::string(architecture) + "." + name; };
    GgufBuilder builder;
    builder.string("general.architecture", architecture)
        .integer(key("block_count"), 2)
        .integer(key("context_length"), 64)
        .integer(key("embedding_length"), 32)
        .integer(key("feed_forward_length"), 24)
        .integer(key("attention.head_count"), 4)
        .integer(key("attention.head_count_kv"), 2)
        .integer(key("attention.key_length"), 8)
        .number(key("attention.layer_norm_rms_epsilon"), 1e-5f)
        .floats("token_embd.weight", {8, 32}, std::vector<float>(256));
    const Parsed parsed(builder);
    const auto config = read_gguf_config(*parsed.files);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->family, architecture);
    EXPECT_EQ(config->num_moe_layers(), 0);
    EXPECT_EQ(config->dense_intermediate_size, 24);
    EXPECT_EQ(config->grouped_query.qkv_bias, config->family == "qwen2");
    EXPECT_TRUE(config->notes.empty());
    EXPECT_THAT(error_of(builder.integer(key("rope.dimension_count"), 4)),
                HasSubstr("partial_rotary_factor (" + key("rope.dimension_count") +
                          "): expected 1, found 0.5"));
  }
}

// Every fourth layer attends to all positions where the file does not say it.
TEST(GgufConfig, WindowsOfKExaone) {
  const auto windows = [](const GgufBuilder& builder) {
    const Parsed parsed(builder);
    const auto config = read_gguf_config(*parsed.files);
    EXPECT_TRUE(config.ok()) << config.status().message();
    std::vector<int> all;
    if (!config.ok()) return all;
    EXPECT_EQ(config->rope.theta, 500.0);
    EXPECT_EQ(config->routing.scaling_factor, 2.5f);
    EXPECT_EQ(config->shared_intermediate_size, 8);
    EXPECT_TRUE(config->notes.empty());
    for (const LayerConfig& layer : config->layers) {
      EXPECT_EQ(layer.rotates, layer.window > 0);
      all.push_back(layer.window);
    }
    return all;
  };
  const std::string begin = "exaone-moe.";
  const auto small = [&] {
    GgufBuilder builder;
    builder.string("general.architecture", "exaone-moe");
    for (const auto& [key, value] : {std::pair("block_count", 5),
                                     {"context_length", 64},
                                     {"embedding_length", 32},
                                     {"feed_forward_length", 16},
                                     {"attention.head_count", 4},
                                     {"attention.sliding_window", 9},
                                     {"expert_count", 4},
                                     {"expert_used_count", 2},
                                     {"expert_feed_forward_length", 4},
                                     {"expert_shared_count", 2},
                                     {"expert_gating_func", 2}}) {
      builder.integer(begin + key, static_cast<uint32_t>(value));
    }
    return builder.number(begin + "attention.layer_norm_rms_epsilon", 1e-5f)
        .number(begin + "expert_weights_scale", 2.5f)
        .number(begin + "rope.freq_base_swa", 500.0f)
        .floats("token_embd.weight", {8, 32}, std::vector<float>(256));
  };
  EXPECT_EQ(windows(small()), (std::vector{9, 9, 9, 0, 9}));
  const std::string pattern = begin + "attention.sliding_window_pattern";
  EXPECT_EQ(windows(small().integer(pattern, 2)), (std::vector{9, 0, 9, 0, 9}));
  using Type = GgufBuilder::Type;
  EXPECT_EQ(windows(small().list<int32_t>(pattern, Type::kI32, {0, 1, 1, 0, 0})),
            (std::vector{0, 9, 9, 0, 0}));
}

// Six layers, the last of full attention; without v_proj, so that its values are keys.
GgufBuilder gemma4(const std::vector<float>& divisors) {
  GgufBuilder builder;
  builder.string("general.architecture", "gemma4")
      .integer("gemma4.block_count", 6)
      .integer("gemma4.context_length", 64)
      .integer("gemma4.embedding_length", 32)
      .integer("gemma4.feed_forward_length", 24)
      .integer("gemma4.attention.head_count", 4)
      .integer("gemma4.attention.head_count_kv", 2)
      .integer("gemma4.attention.key_length", 8)
      .integer("gemma4.attention.key_length_swa", 4)
      .integer("gemma4.attention.sliding_window", 16)
      .number("gemma4.attention.layer_norm_rms_epsilon", 1e-6f)
      .number("gemma4.rope.freq_base", 1e6f)
      .floats("rope_freqs.weight", {divisors.size()}, divisors)
      .floats("token_embd.weight", {8, 32}, std::vector<float>(256));
  return builder;
}

TEST(GgufConfig, KindsOfLayersOfGemma4) {
  const Parsed parsed(gemma4({1.0f, 1e30f, 1e30f, 1e30f}));
  const auto config = read_gguf_config(*parsed.files);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->family, "gemma4_text");
  EXPECT_FALSE(config->has_experts());
  EXPECT_TRUE(config->notes.empty());
  const AttentionKind sliding = config->attention_of(0), full = config->attention_of(5);
  EXPECT_EQ(sliding.head_dim, 4);
  EXPECT_EQ(sliding.rope.theta, 1e4);
  EXPECT_EQ(full.head_dim, 8);
  EXPECT_EQ(full.num_kv_heads, 2);
  EXPECT_EQ(full.rope.theta, 1e6);
  EXPECT_EQ(full.rope.rotating_pairs, 1);
  EXPECT_TRUE(full.options.value_is_key);
  EXPECT_EQ(config->layers[0].window, 16);
  EXPECT_EQ(config->layers[5].window, 0);
  constexpr const char* kShare = "rope_parameters.full_attention.partial_rotary_factor: ";
  EXPECT_THAT(error_of(gemma4({1.0f, 2.0f, 1e30f, 1e30f})), HasSubstr(kShare));
  EXPECT_THAT(error_of(gemma4({1e30f, 1e30f, 1e30f, 1e30f})), HasSubstr(kShare));
  EXPECT_THAT(error_of(gemma4({1.0f}).integer("gemma4.embedding_length_per_layer_input", 8)),
              HasSubstr("hidden_size_per_layer_input (gemma4.embedding_length_per_layer_input): "
                        "expected 0, found 8"));
  EXPECT_THAT(error_of(gemma4({1.0f})
                           .string("gemma4.rope.scaling.type", "linear")
                           .number("gemma4.rope.scaling.factor", 4.0f)),
              HasSubstr("proportional with scaling linear is not supported"));
}

TEST(GgufConfig, BadInputIsOneLine) {
  EXPECT_THAT(error_of(GgufBuilder()), HasSubstr("general.architecture: missing is not supported"));
  EXPECT_THAT(error_of(GgufBuilder().string("general.architecture", "gemma3")),
              HasSubstr("gemma3 is not supported; supported: qwen3moe, "));
  EXPECT_THAT(error_of(GgufBuilder().string("general.architecture", "llama")),
              HasSubstr("m: vocab_size (token_embd.weight): missing"));
  EXPECT_THAT(error_of(GgufBuilder().string("general.architecture", "qwen3moe")),
              HasSubstr("qwen3moe.expert_count: missing or 0: expected the number of experts"));
  EXPECT_THAT(
      error_of(
          GgufBuilder().string("general.architecture", "qwen3").integer("qwen3.expert_count", 4)),
      HasSubstr("qwen3.expert_count: expected none or 0"));
  EXPECT_THAT(error_of(GgufBuilder()
                           .string("general.architecture", "qwen3moe")
                           .integer("qwen3moe.expert_count", 4)),
              HasSubstr("m: "));
  EXPECT_THAT(error_of(mixtral().number("llama.expert_weights_scale", 2.5f)),
              HasSubstr("llama.expert_weights_scale: expected 1 or none"));
  EXPECT_THAT(error_of(mixtral().string("llama.rope.scaling.type", "longrope")),
              HasSubstr("longrope is not supported"));
}

// Keys are called as in config.json, with the file's own behind.
TEST(GgufConfig, ErrorsNameTheKeyOfTheFile) {
  const auto small = [] {
    GgufBuilder builder;
    return builder.string("general.architecture", "qwen3moe").integer("qwen3moe.expert_count", 4);
  };
  EXPECT_THAT(error_of(small()), HasSubstr("m: vocab_size (token_embd.weight): missing"));
  EXPECT_THAT(error_of(small().floats("token_embd.weight", {1, 1}, {1})),
              HasSubstr("m: hidden_size (qwen3moe.embedding_length): missing"));
  EXPECT_THAT(error_of(mixtral().number("llama.rope.freq_base", -1.0f)),
              HasSubstr("m: rope_theta (llama.rope.freq_base): "));
  EXPECT_THAT(error_of(mixtral()
                           .string("llama.rope.scaling.type", "yarn")
                           .number("llama.rope.scaling.factor", -2.0f)),
              HasSubstr("rope_scaling.factor (llama.rope.scaling.factor): "));
}

TEST(GgufConfig, UnknownKeysAreNoted) {
  const Parsed parsed(mixtral().integer("llama.some.new_key", 1));
  const auto config = read_gguf_config(*parsed.files);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->notes, testing::Contains(HasSubstr("llama.some.new_key")));
}

// Each frequency is divided by its number, whatever the numbers are.
TEST(GgufConfig, DivisorsOfFrequenciesAreUsedAsTheyAre) {
  for (const std::vector<float>& divisors :
       {std::vector<float>{1, 1, 1, 1}, std::vector<float>{2, 1, 1, 1},
        std::vector<float>{1, 1, 3.5f, 8}, std::vector<float>{8, 8, 8, 8},
        std::vector<float>{0.5f, 1, 1, 0.25f}}) {
    const Parsed parsed(mixtral().floats("rope_freqs.weight", {4}, divisors));
    const auto config = read_gguf_config(*parsed.files);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->rope.scaling, RopeConfig::Scaling::kNone);
    const Rope rope(config->rope, 8);
    std::vector<float> cos_sin(8);
    rope.angles(7, cos_sin.data());
    for (size_t i = 0; i < 4; ++i) {
      const double angle = 7 / std::pow(10000.0, i / 4.0) / double{divisors[i]};
      EXPECT_NEAR(cos_sin[i], std::cos(angle), 1e-6) << i;
      EXPECT_NEAR(cos_sin[4 + i], std::sin(angle), 1e-6) << i;
    }
  }
}

// Scaling comes after the division, as in llama.cpp.
TEST(GgufConfig, DivisorsBesideScaling) {
  const Parsed parsed(mixtral()
                          .string("llama.rope.scaling.type", "linear")
                          .number("llama.rope.scaling.factor", 4.0f)
                          .floats("rope_freqs.weight", {4}, {2, 1, 1, 1}));
  const auto config = read_gguf_config(*parsed.files);
  ASSERT_TRUE(config.ok()) << config.status().message();
  std::vector<float> cos_sin(8);
  Rope(config->rope, 8).angles(4, cos_sin.data());
  EXPECT_NEAR(cos_sin[0], std::cos(4.0 / 8), 1e-6);
  EXPECT_NEAR(cos_sin[1], std::cos(4.0 / 10 / 4), 1e-6);
}

TEST(GgufConfig, DivisorsThatAreNoneAreRefused) {
  const auto refusal = [](std::vector<float> divisors) {
    const uint64_t count = divisors.size();
    return error_of(mixtral().floats("rope_freqs.weight", {count}, std::move(divisors)));
  };
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const float wrong : {0.0f, -1.0f, kNaN, std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(refusal({1, 1, wrong, 1}),
                HasSubstr("m: tensor 'rope_freqs.weight': expected positive numbers, by which "
                          "frequencies are divided, found"));
  }
  EXPECT_THAT(refusal({1, 1}), HasSubstr("m: tensor 'rope_freqs.weight': expected a number for "
                                         "each of the 4 pairs of rotated dimensions, found 2"));
}

// All tensors of mixtral() but one, which has other rows if there are any.
GgufBuilder with_tensors(const std::string& other = "", uint64_t rows = 0) {
  GgufBuilder builder = mixtral();
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape) {
    if (name == other && rows == 0) return;
    if (name == other) shape.front() = rows;
    size_t count = 1;
    for (const uint64_t size : shape) count *= size;
    builder.floats(name, shape, std::vector<float>(count, 1.0f));
  };
  add("output_norm.weight", {32});
  for (const std::string block : {"blk.0.", "blk.1."}) {
    add(block + "attn_norm.weight", {32});
    add(block + "ffn_norm.weight", {32});
    add(block + "attn_q.weight", {32, 32});
    add(block + "attn_k.weight", {16, 32});
    add(block + "attn_v.weight", {16, 32});
    add(block + "attn_output.weight", {32, 32});
    add(block + "ffn_gate_inp.weight", {4, 32});
    add(block + "ffn_gate_exps.weight", {4, 16, 32});
    add(block + "ffn_up_exps.weight", {4, 16, 32});
    add(block + "ffn_down_exps.weight", {4, 32, 16});
  }
  return builder;
}

Status opened(const GgufBuilder& builder) {
  Parsed parsed(builder);
  auto config = read_gguf_config(*parsed.files);
  EXPECT_TRUE(config.ok()) << config.status().message();
  if (!config.ok()) return config.status();
  return GgufTensors::of(std::move(*parsed.files), &*config).status();
}

TEST(GgufTensors, NameWhatIsMissingOrHasAnotherShape) {
  EXPECT_TRUE(opened(with_tensors()).ok()) << opened(with_tensors()).message();
  for (const std::string name : {"output_norm.weight", "blk.0.attn_norm.weight",
                                 "blk.1.attn_q.weight", "blk.1.ffn_gate_inp.weight"}) {
    EXPECT_EQ(opened(with_tensors(name)).message(), "m: tensor '" + name + "': missing");
  }
  EXPECT_EQ(opened(with_tensors("blk.1.attn_k.weight", 8)).message(),
            "m: tensor 'blk.1.attn_k.weight': expected 16 rows of 32, found [8, 32]");
  EXPECT_EQ(opened(with_tensors("blk.1.ffn_up_exps.weight", 3)).message(),
            "m: tensor 'blk.1.ffn_up_exps.weight': expected 64 rows of 32, found [3, 16, 32]");
  EXPECT_EQ(opened(with_tensors("blk.0.ffn_norm.weight", 31)).message(),
            "m: tensor 'blk.0.ffn_norm.weight': expected [32] of F32, F16 or BF16, found [31] of "
            "F32");
}

TEST(GgufTensors, RefuseTensorsThatWouldChangeResults) {
  for (const std::string name :
       {"blk.0.attn_output.bias", "rope_factors_long.weight", "rope_factors_short.weight"}) {
    GgufBuilder builder = with_tensors();
    builder.floats(name, {32}, std::vector<float>(32));
    EXPECT_THAT(opened(builder).message(), HasSubstr("tensor '" + name + "'"));
  }
}

}  // namespace
}  // namespace wideep::model
