// SPDX-License-Identifier: Apache-2.0
//
// Metadata of architectures whose layers have windows or not, built in memory and changed in one key
// at a time. Files that llama.cpp has converted are in gguf_golden_test.cc.
#include "model/gguf/gguf_layer_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "model/gguf/gguf_config.h"
#include "tensor_files/gguf_testing.h"

namespace wideep::model {
namespace {

using tensor_files::GgufBuilder;
using tensor_files::GgufFile;
using tensor_files::GgufFiles;
using testing::HasSubstr;
using Type = GgufBuilder::Type;

// Builds the metadata of one architecture.
struct Small {
  explicit Small(const std::string& architecture) : begin(architecture + ".") {
    builder.string("general.architecture", architecture)
        .number(begin + "attention.layer_norm_rms_epsilon", 1e-5f)
        .number(begin + "rope.freq_base", 5e5f)
        .number(begin + "rope.freq_base_swa", 1e4f)
        .floats("token_embd.weight", {8, 32}, std::vector<float>(256));
    for (const auto& [key, value] : {std::pair("block_count", 4),
                                     {"context_length", 64},
                                     {"embedding_length", 32},
                                     {"feed_forward_length", 16},
                                     {"attention.key_length", 8},
                                     {"attention.value_length", 8},
                                     {"attention.sliding_window", 9},
                                     {"expert_count", 4},
                                     {"expert_used_count", 2},
                                     {"expert_feed_forward_length", 4},
                                     {"leading_dense_block_count", 1}}) {
      integer(key, value);
    }
  }
  Small& integer(const std::string& key, int value) {
    builder.integer(begin + key, static_cast<uint32_t>(value));
    return *this;
  }
  Small& list(const std::string& key, const std::vector<int32_t>& values) {
    builder.list<int32_t>(begin + key, Type::kI32, values);
    return *this;
  }
  Small& number(const std::string& key, float value) {
    builder.number(begin + key, value);
    return *this;
  }
  Small& text(const std::string& key, const std::string& value) {
    builder.string(begin + key, value);
    return *this;
  }

  Result<ModelConfig> read() const {
    const std::string bytes = builder.file();
    auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "m");
    EXPECT_TRUE(file.ok()) << file.status().message();
    std::optional<GgufFiles> files;
    files.emplace(std::move(*file));
    return read_gguf_config(*files);
  }
  ModelConfig accepted() const {
    const auto config = read();
    EXPECT_TRUE(config.ok()) << config.status().message();
    if (!config.ok()) return {};
    EXPECT_TRUE(config->notes.empty()) << config->notes.front();
    return *config;
  }
  std::string error() const {
    const auto config = read();
    EXPECT_FALSE(config.ok());
    return config.ok() ? "" : config.status().message();
  }

  std::string begin;
  GgufBuilder builder;
};

std::vector<int> windows(const ModelConfig& config) {
  std::vector<int> all;
  for (const LayerConfig& layer : config.layers) all.push_back(layer.window);
  return all;
}

constexpr const char* kPattern = "attention.sliding_window_pattern";
constexpr const char* kHeads = "attention.head_count_kv";

// ---- mimo2 ----

Small mimo() {
  Small small("mimo2");
  small.integer("attention.head_count", 4).number("attention.value_scale", 0.5f);
  return small.integer("rope.dimension_count", 4);
}

TEST(GgufLayerKinds, WindowsOfMimoCountThePositionsBefore) {
  const ModelConfig config =
      mimo().list(kPattern, {0, 1, 1, 0, 1}).list(kHeads, {1, 2, 2, 1, 2}).accepted();
  EXPECT_EQ(windows(config), (std::vector{0, 10, 10, 0}));
  EXPECT_EQ(config.attention_of(0).num_kv_heads, 1);
  EXPECT_EQ(config.attention_of(1).num_kv_heads, 2);
  EXPECT_EQ(config.attention_of(0).rope.theta, 5e5);
  EXPECT_EQ(config.attention_of(1).rope.theta, 1e4);
  EXPECT_EQ(config.attention_of(1).options.rotary_dim, 4);
  EXPECT_EQ(config.attention_of(1).options.value_scale, 0.5f);
  EXPECT_FALSE(config.is_moe(0));
  EXPECT_TRUE(config.is_moe(1));
  // Without value_scale, values are not scaled.
  Small plain("mimo2");
  plain.integer("attention.head_count", 4).list(kPattern, {1, 1, 1, 1});
  const ModelConfig sliding = plain.integer(kHeads, 2).accepted();
  EXPECT_EQ(sliding.attention_of(0).options.value_scale, 1.0f);
  EXPECT_EQ(sliding.attention_of(0).num_kv_heads, 2);
}

TEST(GgufLayerKinds, ContradictionsOfMimoAreRefused) {
  EXPECT_THAT(mimo().integer(kHeads, 2).error(),
              HasSubstr("m: mimo2.attention.sliding_window_pattern: expected a list with an "
                        "element for each of the 4 layers, found none"));
  EXPECT_THAT(mimo().integer(kHeads, 2).list(kPattern, {0, 1}).error(),
              HasSubstr("each of the 4 layers, found 2"));
  const auto heads = [](const std::vector<int32_t>& list) {
    return mimo().list(kPattern, {0, 1, 1, 1}).list(kHeads, list).error();
  };
  EXPECT_THAT(heads({1, 2, 2, 4}),
              HasSubstr("mimo2.attention.head_count_kv: expected 2 for layer 3, as other layers "
                        "with windows have, found 4"));
  EXPECT_THAT(heads({1, 2}), HasSubstr("expected a number for each of the 4 layers, found 2"));
  EXPECT_THAT(heads({2, 2, 2, 2}),
              HasSubstr("swa_num_key_value_heads (mimo2.attention.head_count_kv): "));
  const auto whole = [] { return mimo().list(kPattern, {0, 1, 1, 1}).list(kHeads, {1, 2, 2, 2}); };
  EXPECT_THAT(whole().integer("expert_gating_func", 1).error(),
              HasSubstr("mimo2.expert_gating_func: expected 2, or none, found 1"));
  EXPECT_THAT(
      whole().text("rope.scaling.type", "yarn").number("rope.scaling.factor", 4.0f).error(),
      HasSubstr("mimo2.rope.scaling.type: expected none; wideep scales no rotation in this"));
}

}  // namespace
}  // namespace wideep::model
