// SPDX-License-Identifier: Apache-2.0
//
// Metadata of architectures whose layers have windows or not, built in memory and changed in one key
// at a time. Files that llama.cpp has converted are in gguf_golden_test.cc.
#include "model/gguf/gguf_layer_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "model/gguf/gguf_config.h"
#include "tensor_files/gguf_testing.h"

namespace wideep::model {
namespace {

using tensor_files::GgufBuilder;
using tensor_files::GgufFile;
using tensor_files::GgufFiles;
using testing::HasSubstr;
using Type = GgufBuilder::Type;

// The metadata of one architecture, whose keys may be set again.
struct Small {
  explicit Small(const std::string& architecture) : begin(architecture + ".") {
    builder.string("general.architecture", architecture)
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
    number("attention.layer_norm_rms_epsilon", 1e-5f);
    number("rope.freq_base", 5e5f).number("rope.freq_base_swa", 1e4f);
  }
  Small& set(const std::string& key, Type type, const std::string& bytes) {
    entries.insert_or_assign(begin + key, std::pair(type, bytes));
    return *this;
  }
  Small& integer(const std::string& key, int value) {
    return set(key, Type::kU32, GgufBuilder::bytes_of(static_cast<uint32_t>(value)));
  }
  Small& number(const std::string& key, float value) {
    return set(key, Type::kF32, GgufBuilder::bytes_of(value));
  }
  Small& boolean(const std::string& key, bool value) {
    return set(key, Type::kBool, std::string(1, value ? '\1' : '\0'));
  }
  Small& text(const std::string& key, const std::string& value) {
    return set(key, Type::kString, GgufBuilder::text(value));
  }
  template <typename T>
  Small& values(const std::string& key, Type type, const std::vector<T>& list) {
    std::string bytes = GgufBuilder::bytes_of(static_cast<uint32_t>(type)) +
                        GgufBuilder::bytes_of<uint64_t>(list.size());
    for (const T value : list) bytes += GgufBuilder::bytes_of(value);
    return set(key, Type::kList, bytes);
  }
  Small& list(const std::string& key, const std::vector<int32_t>& integers) {
    return values(key, Type::kI32, integers);
  }

  Result<ModelConfig> read() const {
    GgufBuilder whole = builder;
    for (const auto& [key, entry] : entries) whole.entry(key, entry.first, entry.second);
    const std::string bytes = whole.file();
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
  GgufBuilder builder;  // of the architecture's name and of tensors
  std::map<std::string, std::pair<Type, std::string>> entries;
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

// ---- afmoe ----

Small afmoe() {
  Small small("afmoe");
  small.boolean("expert_weights_norm", true);
  small.integer("attention.head_count", 4).integer(kHeads, 2).number("rope.freq_base_swa", 5e5f);
  return small.integer("expert_shared_count", 1);
}

TEST(GgufLayerKinds, EveryFourthLayerOfAfmoeDoesNotRotate) {
  const ModelConfig config = afmoe().number("expert_weights_scale", 2.5f).accepted();
  EXPECT_EQ(windows(config), (std::vector{9, 9, 9, 0}));
  EXPECT_FALSE(config.layers[3].rotates);
  EXPECT_EQ(config.routing.scaling_factor, 2.5f);
  EXPECT_FLOAT_EQ(config.embedding_scale, std::sqrt(32.0f));
  EXPECT_EQ(windows(afmoe().list(kPattern, {1, 1, 1, 0}).accepted()), windows(config));

  EXPECT_THAT(afmoe().list(kPattern, {1, 0, 1, 0}).error(),
              HasSubstr("afmoe.attention.sliding_window_pattern: expected windows in all but every "
                        "fourth layer"));
  EXPECT_THAT(afmoe().integer("attention.sliding_window", 0).error(),
              HasSubstr("sliding_window (afmoe.attention.sliding_window): missing"));
  EXPECT_THAT(afmoe().number("rope.freq_base_swa", 1e4f).error(),
              HasSubstr("afmoe.rope.freq_base_swa: expected 500000.0, or none, found 10000.0"));
  EXPECT_THAT(afmoe().integer("expert_gating_func", 1).error(),
              HasSubstr("afmoe.expert_gating_func: expected 2"));
  EXPECT_THAT(afmoe().integer("rope.dimension_count", 4).error(),
              HasSubstr("afmoe.rope.dimension_count: expected 8, or none, found 4"));
  Small small = afmoe();
  small.boolean("expert_weights_norm", false);
  EXPECT_THAT(small.error(), HasSubstr("route_norm (afmoe.expert_weights_norm): expected true"));
}

// ---- laguna ----

Small laguna(const std::vector<int32_t>& heads) {
  Small small("laguna");
  small.boolean("expert_weights_norm", true);
  return small.list("attention.head_count", heads).integer(kHeads, 2);
}

TEST(GgufLayerKinds, HeadsAndGatesOfLaguna) {
  const ModelConfig config = laguna({4, 6, 6, 6})
                                 .integer("rope.dimension_count", 4)
                                 .integer("rope.dimension_count_swa", 8)
                                 .integer("expert_shared_feed_forward_length", 6)
                                 .accepted();
  EXPECT_EQ(windows(config), (std::vector{0, 9, 9, 9}));
  EXPECT_EQ(config.attention_of(0).num_heads, 4);
  EXPECT_EQ(config.attention_of(1).num_heads, 6);
  EXPECT_EQ(config.attention_of(0).options.rotary_dim, 4);
  EXPECT_EQ(config.attention_of(1).options.rotary_dim, 8);
  EXPECT_EQ(config.attention_of(0).options.gate, GroupedQueryConfig::Gate::kHeads);
  EXPECT_EQ(config.shared_intermediate_size, 6);

  Small full = laguna({4, 4, 4, 4});
  full.integer("attention.sliding_window", 0).integer("expert_shared_count", 2);
  full.builder.floats("blk.0.attn_gate.weight", {32, 32}, std::vector<float>(32 * 32));
  const ModelConfig plain = full.accepted();
  EXPECT_EQ(windows(plain), (std::vector{0, 0, 0, 0}));
  EXPECT_EQ(plain.attention_of(0).options.gate, GroupedQueryConfig::Gate::kElements);
  EXPECT_EQ(plain.shared_intermediate_size, 8);

  EXPECT_THAT(laguna({4, 6}).error(),
              HasSubstr("num_attention_heads_per_layer (laguna.attention.head_count): expected a "
                        "number for each of the 4 layers, found 2"));
  EXPECT_THAT(laguna({4, 4, 4, 5}).error(),
              HasSubstr("expected a multiple of num_key_value_heads"));
  EXPECT_THAT(laguna({4, 4, 4, 4}).integer("expert_gating_func", 1).error(),
              HasSubstr("laguna.expert_gating_func: expected 2"));
  EXPECT_THAT(laguna({4, 4, 4, 4}).list(kPattern, {1, 1}).error(),
              HasSubstr("each of the 4 layers, found 2"));
}

// ---- mellum ----

Small mellum() {
  Small small("mellum");
  return small.integer("attention.head_count", 4).integer(kHeads, 2);
}

TEST(GgufLayerKinds, RotationsOfMellum) {
  const ModelConfig config = mellum()
                                 .list(kPattern, {1, 0, 1, 0})
                                 .text("rope.scaling.type", "yarn")
                                 .number("rope.scaling.factor", 4.0f)
                                 .integer("rope.scaling.original_context_length", 16)
                                 .accepted();
  EXPECT_EQ(windows(config), (std::vector{9, 0, 9, 0}));
  EXPECT_EQ(config.attention_of(0).rope.scaling, RopeConfig::Scaling::kNone);
  EXPECT_EQ(config.attention_of(1).rope.scaling, RopeConfig::Scaling::kYarn);
  EXPECT_EQ(config.attention_of(1).rope.factor, 4.0);
  EXPECT_TRUE(config.routing.normalize);
  EXPECT_EQ(windows(mellum().accepted()), (std::vector{9, 9, 9, 0}));
  EXPECT_EQ(windows(mellum().integer("attention.sliding_window", 0).accepted()),
            (std::vector{0, 0, 0, 0}));
  EXPECT_THAT(mellum().number("expert_weights_scale", 2.0f).error(),
              HasSubstr("mellum.expert_weights_scale: expected 1 or none"));
}

// ---- step35 ----

Small step() {
  Small small("step35");
  small.boolean("expert_weights_norm", true);
  small.integer("expert_shared_feed_forward_length", 6).list(kPattern, {0, 1, 1, 0, 1});
  return small.list("attention.head_count", {4, 6, 6, 4, 6}).list(kHeads, {2, 2, 2, 2, 2});
}

TEST(GgufLayerKinds, HeadsAndLimitsOfStep) {
  Small small = step();
  small.values<float>("swiglu_clamp_exp", Type::kF32, {0.0f, 7.0f, 0.0f, 0.0f, 1.0f});
  const ModelConfig config = small.number("swiglu_clamp_shexp", 16.0f).accepted();
  EXPECT_EQ(windows(config), (std::vector{0, 9, 9, 0}));
  EXPECT_EQ(config.attention_of(0).num_heads, 4);
  EXPECT_EQ(config.attention_of(1).num_heads, 6);
  EXPECT_EQ(config.attention_of(0).options.rotary_dim, 4);
  EXPECT_EQ(config.attention_of(1).options.rotary_dim, 8);
  EXPECT_EQ(config.layers[1].expert_limit, 7.0f);
  EXPECT_EQ(config.layers[2].expert_limit, 0.0f);
  EXPECT_EQ(config.layers[3].mlp_limit, 16.0f);
  EXPECT_EQ(config.shared_intermediate_size, 6);
}

TEST(GgufLayerKinds, ContradictionsOfStepAreRefused) {
  EXPECT_THAT(step().list(kHeads, {2, 1, 1, 2}).error(),
              HasSubstr("step35.attention.head_count_kv: expected as many in all layers, found 2 "
                        "in layers of full attention and 1 in others"));
  EXPECT_THAT(step().list("attention.head_count", {4, 6, 4, 4}).error(),
              HasSubstr("step35.attention.head_count: expected 6 for layer 2"));
  EXPECT_THAT(step().integer("moe_every_n_layers", 2).error(),
              HasSubstr("step35.moe_every_n_layers: expected 1"));
  EXPECT_THAT(step().number("swiglu_clamp_exp", -1.0f).error(),
              HasSubstr("swiglu_limits (step35.swiglu_clamp_exp): "));
  Small small = step();
  small.boolean("expert_weights_norm", false);
  EXPECT_THAT(small.error(), HasSubstr("norm_expert_weight (step35.expert_weights_norm): "));
}

// Ones lie behind the divisors of the pairs that rotate in layers of full attention.
TEST(GgufLayerKinds, DivisorsOfStep) {
  const auto with = [](const std::vector<float>& divisors) {
    Small small = step();
    small.builder.floats("rope_freqs.weight", {divisors.size()}, divisors);
    return small;
  };
  EXPECT_EQ(with({2.0f, 3.0f, 1.0f, 1.0f}).accepted().rope.divisors, (std::vector{2.0f, 3.0f}));
  EXPECT_EQ(with({2.0f, 3.0f}).accepted().rope.divisors, (std::vector{2.0f, 3.0f}));
  EXPECT_THAT(with({2.0f, 3.0f, 4.0f, 1.0f}).error(), HasSubstr("each of the 2 pairs"));
  EXPECT_THAT(with({2.0f}).error(), HasSubstr("found 1"));
}

// ---- deepseek4, whose kinds are of compressed attention ----

Small v4() {
  Small small("deepseek4");
  small.boolean("expert_weights_norm", true).number("expert_weights_scale", 1.5f);
  for (const auto& [key, value] : {std::pair("attention.head_count", 4),
                                   {"attention.head_count_kv", 1},
                                   {"attention.q_lora_rank", 12},
                                   {"attention.output_group_count", 2},
                                   {"attention.output_lora_rank", 6},
                                   {"attention.indexer.head_count", 4},
                                   {"attention.indexer.key_length", 10},
                                   {"attention.indexer.top_k", 5},
                                   {"rope.dimension_count", 4},
                                   {"expert_shared_count", 1},
                                   {"expert_gating_func", 4},
                                   {"hash_layer_count", 1},
                                   {"hyper_connection.count", 3},
                                   {"hyper_connection.sinkhorn_iterations", 7}}) {
    small.integer(key, value);
  }
  small.number("hyper_connection.epsilon", 1e-5f);
  small.number("attention.compress_rope_freq_base", 3e4f);
  for (const char* other : {"rope.freq_base_swa", "leading_dense_block_count"}) {
    small.entries.erase(small.begin + other);
  }
  for (const char* limits : {"swiglu_clamp_exp", "swiglu_clamp_shexp"}) {
    small.values<float>(limits, Type::kF32, {7, 7, 7, 7});
  }
  return small.list("attention.compress_ratios", {0, 4, 128, 4, 0});
}

TEST(GgufLayerKinds, GroupsOfDeepseekV4) {
  const ModelConfig config = v4().accepted();
  EXPECT_EQ(windows(config), (std::vector{9, 0, 0, 0}));
  EXPECT_EQ(config.attention_of(1).group_size, 4);
  EXPECT_EQ(config.attention_of(2).group_size, 128);
  EXPECT_EQ(config.attention_of(2).rope.theta, 3e4);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_EQ(config.hyper.num_streams, 3);
  EXPECT_EQ(config.activation.limit, 7.0f);
  EXPECT_TRUE(config.layers[0].by_token);
  EXPECT_FALSE(config.layers[1].by_token);
  EXPECT_EQ(config.num_mtp_layers, 0);

  EXPECT_THAT(v4().integer("expert_gating_func", 2).error(),
              HasSubstr("deepseek4.expert_gating_func: expected 4, or none, found 2"));
  EXPECT_THAT(v4().values<float>("swiglu_clamp_shexp", Type::kF32, {7, 7, 1, 7}).error(),
              HasSubstr("deepseek4.swiglu_clamp_shexp: expected the same number for every layer"));
  EXPECT_THAT(v4().list("attention.compress_ratios", {0, 4}).error(),
              HasSubstr("compress_ratios (deepseek4.attention.compress_ratios): "));
  Small lacking = v4();
  lacking.entries.erase("deepseek4.hyper_connection.count");
  EXPECT_THAT(lacking.error(), HasSubstr("hc_mult (deepseek4.hyper_connection.count): "));
}

// ---- bailingmoe3, whose kinds are Kimi Delta Attention and latent attention ----

Small ling() {
  Small small("bailingmoe3");
  small.boolean("expert_weights_norm", true).number("kda.gate_lower_bound", -5.0f);
  for (const auto& [key, value] : {std::pair("attention.head_count", 4),
                                   {"attention.kv_lora_rank", 12},
                                   {"attention.key_length_mla", 20},
                                   {"attention.value_length_mla", 12},
                                   {"rope.dimension_count", 8},
                                   {"ssm.conv_kernel", 4},
                                   {"kda.head_dim", 16},
                                   {"expert_shared_count", 1},
                                   {"expert_shared_feed_forward_length", 4},
                                   {"expert_gating_func", 2}}) {
    small.integer(key, value);
  }
  small.entries.erase("bailingmoe3.attention.sliding_window");
  small.entries.erase("bailingmoe3.rope.freq_base_swa");
  return small.list(kHeads, {0, 0, 0, 1});
}

TEST(GgufLayerKinds, MixersOfLing) {
  const ModelConfig config = ling().accepted();
  EXPECT_EQ(config.layers[0].mixer, LayerConfig::Mixer::kKimiDelta);
  EXPECT_NE(config.layers[3].mixer, LayerConfig::Mixer::kKimiDelta);
  EXPECT_EQ(config.kimi_delta.decay_bound, -5.0f);
  EXPECT_EQ(config.kimi_delta.head_dim, 16);
  EXPECT_TRUE(config.latent_gate);
  // Layers that predict further tokens follow in lists, though the tensors may lie elsewhere.
  const ModelConfig more = ling()
                               .integer("block_count", 5)
                               .integer("nextn_predict_layers", 1)
                               .list(kHeads, {0, 0, 0, 1, 1})
                               .accepted();
  EXPECT_EQ(more.num_layers, 4);
  EXPECT_EQ(more.num_mtp_layers, 0);
  const std::vector<float> none(4);
  EXPECT_EQ(ling().values<float>("swiglu_clamp_exp", Type::kF32, none).accepted().num_layers, 4);

  EXPECT_THAT(ling().values<float>("swiglu_clamp_exp", Type::kF32, {0, 0, 7, 0}).error(),
              HasSubstr("bailingmoe3.swiglu_clamp_exp: expected 0 for every layer, found 7 for "
                        "layer 2"));
  EXPECT_THAT(ling().boolean("kda.safe_gate", false).error(),
              HasSubstr("bailingmoe3.kda.safe_gate: expected true, or none, found false"));
  EXPECT_THAT(ling().number("kda.gate_lower_bound", 1.0f).error(),
              HasSubstr("kda_lower_bound (bailingmoe3.kda.gate_lower_bound): "));
  EXPECT_THAT(ling().integer("expert_shared_feed_forward_length", 8).error(),
              HasSubstr("(bailingmoe3.expert_shared_feed_forward_length): "));
  EXPECT_THAT(ling().integer("expert_gating_func", 1).error(),
              HasSubstr("bailingmoe3.expert_gating_func: expected 2"));
}

}  // namespace
}  // namespace wideep::model
