// SPDX-License-Identifier: Apache-2.0
#include "model/gguf/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "formats/gguf_testing.h"
#include "model/gguf/gguf_tensors.h"

namespace wideep::model {
namespace {

using formats::GgufBuilder;
using formats::GgufFile;
using formats::GgufFiles;
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

TEST(GgufConfig, BadInputIsOneLine) {
  EXPECT_THAT(error_of(GgufBuilder()), HasSubstr("general.architecture: missing is not supported"));
  EXPECT_THAT(error_of(GgufBuilder().string("general.architecture", "gemma3")),
              HasSubstr("gemma3 is not supported; supported: qwen3moe, "));
  EXPECT_THAT(error_of(GgufBuilder().string("general.architecture", "llama")),
              HasSubstr("llama.expert_count: missing: a model without experts"));
  EXPECT_THAT(error_of(GgufBuilder()
                           .string("general.architecture", "qwen3moe")
                           .integer("qwen3moe.expert_count", 4)),
              HasSubstr("m: "));
  EXPECT_THAT(error_of(mixtral().number("llama.expert_weights_scale", 2.5f)),
              HasSubstr("llama.expert_weights_scale: expected 1 or none"));
  EXPECT_THAT(error_of(mixtral().string("llama.rope.scaling.type", "longrope")),
              HasSubstr("longrope is not supported"));
  EXPECT_THAT(error_of(mixtral().floats("rope_freqs.weight", {4}, {1, 0.5f, 0.25f, 1})),
              HasSubstr("rope_freqs.weight"));
}

TEST(GgufConfig, UnknownKeysAreNoted) {
  const Parsed parsed(mixtral().integer("llama.some.new_key", 1));
  const auto config = read_gguf_config(*parsed.files);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_THAT(config->notes, testing::Contains(HasSubstr("llama.some.new_key")));
}

// The divisors of llama.cpp's converter give back frequencies that are the same.
TEST(GgufConfig, DivisorsOfLlama3AreItsParameters) {
  const double theta = 10000.0, factor = 8.0, low = 1.0, high = 4.0, original = 32.0;
  std::vector<float> divisors;
  for (int i = 0; i < 4; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(theta, 2.0 * i / 8);
    const double smooth = (original / wavelength - low) / (high - low);
    divisors.push_back(static_cast<float>(wavelength < original / high ? 1.0
                                          : wavelength > original / low
                                              ? factor
                                              : 1 / ((1 - smooth) / factor + smooth)));
  }
  const Parsed parsed(mixtral().floats("rope_freqs.weight", {4}, divisors));
  const auto config = read_gguf_config(*parsed.files);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->rope.scaling, RopeConfig::Scaling::kLlama3);
  const double scale = static_cast<double>(config->rope.original_max_position_embeddings);
  for (int i = 0; i < 4; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(theta, 2.0 * i / 8);
    const double wide = scale / config->rope.low_freq_factor;
    const double narrow = scale / config->rope.high_freq_factor;
    const double smooth = (scale / wavelength - config->rope.low_freq_factor) /
                          (config->rope.high_freq_factor - config->rope.low_freq_factor);
    const double divisor = wavelength < narrow ? 1.0
                           : wavelength > wide ? config->rope.factor
                                               : 1 / ((1 - smooth) / config->rope.factor + smooth);
    EXPECT_NEAR(divisor, divisors[static_cast<size_t>(i)], 1e-5) << i;
  }
}

TEST(GgufTensors, NameWhatIsMissing) {
  Parsed parsed(mixtral());
  auto config = read_gguf_config(*parsed.files);
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto tensors = GgufTensors::of(std::move(*parsed.files), &*config);
  ASSERT_TRUE(tensors.ok()) << tensors.status().message();
  const auto rows = (*tensors)->open_rows("model.layers.0.self_attn.q_proj.weight", 32, 32);
  ASSERT_FALSE(rows.ok());
  EXPECT_EQ(rows.status().message(), "m: tensor 'blk.0.attn_q.weight': missing");
  const auto other = (*tensors)->open_rows("model.embed_tokens.weight", 8, 16);
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.status().message(), HasSubstr("expected 8 rows of 16, found [8, 32]"));
}

TEST(GgufTensors, RefuseTensorsThatWouldChangeResults) {
  Parsed parsed(mixtral().floats("blk.0.attn_output.bias", {32}, std::vector<float>(32)));
  auto config = read_gguf_config(*parsed.files);
  ASSERT_TRUE(config.ok()) << config.status().message();
  const auto tensors = GgufTensors::of(std::move(*parsed.files), &*config);
  ASSERT_FALSE(tensors.ok());
  EXPECT_THAT(tensors.status().message(), HasSubstr("tensor 'blk.0.attn_output.bias'"));
}

}  // namespace
}  // namespace wideep::model
