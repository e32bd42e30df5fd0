// SPDX-License-Identifier: Apache-2.0
//
// Files that mix types: the forms in which matrices are packed, that they keep the values, and what
// the notes say.
#include "model/gguf/packing_notes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/aligned_bytes.h"
#include "kernels/kernels.h"
#include "model/gguf/gguf_config.h"
#include "tensor_files/gguf_testing.h"
#include "weights/weight_loader.h"

namespace wideep::model {
namespace {

using kernels::WeightFormat;
using tensor_files::BlockType;
using tensor_files::GgufBuilder;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using weights::MatrixForm;

constexpr int kHidden = 256, kExperts = 2, kLayers = 2;

// Blocks of random codes and of scales about 1 / 256.
class Blocks {
 public:
  std::string of(BlockType type, size_t count) {
    const tensor_files::BlockTypeInfo& info = tensor_files::block_type_info(type);
    std::string bytes;
    for (size_t i = 0; i < count; i += static_cast<size_t>(info.elements)) {
      std::string block;
      for (int at = 0; at < info.bytes; ++at) block += static_cast<char>(random_());
      // Where the types have half floats: 0x1c00 is 2^-8.
      const bool last = type == BlockType::kQ6K;
      block.replace(last ? 208 : 0, 2, std::string("\0\x1c", 2));
      if (type == BlockType::kQ4K || type == BlockType::kQ5K) {
        block.replace(2, 2, std::string("\0\x1c", 2));
      }
      bytes += block;
    }
    return bytes;
  }

 private:
  std::minstd_rand random_{1};
};

struct Types {
  BlockType query, value, output, gate, first_down, second_down;
};

// A Mixtral of two layers.
std::string file_of(const Types& types) {
  Blocks blocks;
  GgufBuilder builder;
  builder.string("general.architecture", "llama")
      .integer("llama.block_count", kLayers)
      .integer("llama.context_length", 64)
      .integer("llama.embedding_length", kHidden)
      .integer("llama.feed_forward_length", kHidden)
      .integer("llama.attention.head_count", 4)
      .integer("llama.attention.head_count_kv", 4)
      .number("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .integer("llama.expert_count", kExperts)
      .integer("llama.expert_used_count", 1);
  const auto matrix = [&](const std::string& name, BlockType type, std::vector<uint64_t> shape) {
    size_t count = 1;
    for (const uint64_t size : shape) count *= size;
    builder.tensor(name + ".weight", tensor_files::block_type_info(type).id, shape,
                   blocks.of(type, count));
  };
  const auto ones = [&](const std::string& name) {
    builder.floats(name + ".weight", {kHidden}, std::vector<float>(kHidden, 1.0f));
  };
  builder.floats("token_embd.weight", {8, kHidden}, std::vector<float>(8 * kHidden));
  builder.floats("output.weight", {8, kHidden}, std::vector<float>(8 * kHidden));
  ones("output_norm");
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    const BlockType down = layer == 0 ? types.first_down : types.second_down;
    ones(block + "attn_norm");
    ones(block + "ffn_norm");
    matrix(block + "attn_q", types.query, {kHidden, kHidden});
    matrix(block + "attn_k", types.query, {kHidden, kHidden});
    matrix(block + "attn_v", types.value, {kHidden, kHidden});
    matrix(block + "attn_output", types.output, {kHidden, kHidden});
    builder.floats(block + "ffn_gate_inp.weight", {kExperts, kHidden},
                   std::vector<float>(kExperts * kHidden));
    for (const char* name : {"ffn_gate_exps", "ffn_up_exps"}) {
      matrix(block + name, types.gate, {kExperts, kHidden, kHidden});
    }
    matrix(block + "ffn_down_exps", down, {kExperts, kHidden, kHidden});
  }
  return builder.file();
}

struct Mixed {
  explicit Mixed(const Types& types) : bytes(file_of(types)) {
    auto file = tensor_files::GgufFile::parse(std::as_bytes(std::span(bytes)), "m");
    EXPECT_TRUE(file.ok()) << file.status().message();
    tensor_files::GgufFiles files(std::move(*file));
    auto read = read_gguf_config(files);
    EXPECT_TRUE(read.ok()) << read.status().message();
    config = *read;
    auto opened = GgufTensors::of(std::move(files), &config);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    tensors = std::move(*opened);
    forms = model_forms(config, weights::WeightLoader(*tensors, {}));
  }
  std::vector<std::string> notes() const { return packing_notes(config, forms, *tensors); }

  // The products of the packed matrix with unit vectors are the decoded values, but for the
  // rounding of sums whose parts are up to `largest`.
  void expect_kept(const std::string& name, const MatrixForm& form) const {
    const weights::WeightLoader loader(*tensors, {});
    const auto matrix = loader.matrix(name, kHidden, kHidden, form);
    ASSERT_TRUE(matrix.ok() && loader.run().ok());
    const auto expected = loader.floats(name, {kHidden, kHidden});
    ASSERT_TRUE(expected.ok());
    float largest = 0.0f;
    for (const float value : *expected) largest = std::max(largest, std::abs(value));
    const kernels::QuantizedRowShape row = kernels::quantized_row_shape(matrix->packed.shape);
    for (const int k : {0, 1, 31, 32, 100, 255}) {
      base::AlignedBytes x(row.bytes());
      x.data()[k] = std::byte{1};
      reinterpret_cast<float*>(x.data() + row.scales_offset())[k / row.group] = 1.0f;
      reinterpret_cast<int32_t*>(x.data() + row.sums_offset())[k / row.sum_group] = 1;
      std::vector<float> y(kHidden);
      kernels::all_kernels().back()->matmul(
          {1, {x.data(), 0}, matrix->packed, 0, matrix->packed.shape.num_panels(), {y.data(), 0}});
      for (int i = 0; i < kHidden; ++i) {
        const auto at = static_cast<size_t>(i) * kHidden + static_cast<size_t>(k);
        ASSERT_NEAR(y[static_cast<size_t>(i)], (*expected)[at], largest * 0x1p-22f)
            << i << " " << k;
      }
    }
  }

  std::string bytes;  // that the files point to
  ModelConfig config;
  std::unique_ptr<GgufTensors> tensors;
  ModelForms forms;
};

// As llama.cpp makes Q4_K_M.
TEST(PackingNotes, MixturesOfBlocksOf256KeepTheirValues) {
  using enum BlockType;
  const Mixed mixed({.query = kQ4K,
                     .value = kQ6K,
                     .output = kQ5K,
                     .gate = kQ4K,
                     .first_down = kQ6K,
                     .second_down = kQ4K});
  const MatrixForm both = {WeightFormat::kInt8m, 16};
  EXPECT_EQ(mixed.forms.experts, (MatrixForm{WeightFormat::kInt4m, 32}));
  EXPECT_EQ(mixed.forms.expert_down, both);
  EXPECT_EQ(mixed.forms.layers[0].input, both);
  EXPECT_EQ(mixed.forms.layers[0].output, (MatrixForm{WeightFormat::kInt8m, 32}));
  EXPECT_THAT(mixed.notes(), Each(Not(HasSubstr("dB"))));
  EXPECT_THAT(mixed.notes(),
              Contains(AllOf(HasSubstr("equal values"), HasSubstr("Q4_K as int4m in groups of 32"),
                             HasSubstr("Q4_K as int8m in groups of 16"),
                             HasSubstr("Q5_K as int8m in groups of 32"),
                             HasSubstr("Q6_K as int8m in groups of 16"))));
  for (const char* part : {"q", "k", "v"}) {
    mixed.expect_kept(fmt::format("model.layers.1.self_attn.{}_proj.weight", part), both);
  }
  mixed.expect_kept("model.layers.0.self_attn.o_proj.weight", mixed.forms.layers[0].output);
  mixed.expect_kept("model.layers.0.mlp.experts.1.down_proj.weight", both);
  mixed.expect_kept("model.layers.1.mlp.experts.0.down_proj.weight", both);
  mixed.expect_kept("model.layers.1.mlp.experts.1.up_proj.weight", mixed.forms.experts);
}

// What no form holds together: int8, in which the type without minimums keeps its values.
TEST(PackingNotes, WhatIsQuantisedAgainHasItsSignalToNoiseRatio) {
  using enum BlockType;
  const Mixed mixed({.query = kQ4K,
                     .value = kQ4K,
                     .output = kQ4K,
                     .gate = kQ8_0,
                     .first_down = kQ8_0,
                     .second_down = kQ4K});
  const MatrixForm bytes = {WeightFormat::kInt8, 32};
  EXPECT_EQ(mixed.forms.expert_down, std::nullopt);  // as gate and up
  EXPECT_EQ(mixed.forms.experts, bytes);
  mixed.expect_kept("model.layers.0.mlp.experts.0.down_proj.weight", bytes);
  const std::vector<std::string> notes = mixed.notes();
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_THAT(notes[0], HasSubstr("Q4_K as int8 in groups of 32: "));
  EXPECT_THAT(notes[1], HasSubstr("Q8_0 as int8 in groups of 32"));
  const size_t at = notes[0].find(" KiB, ");
  ASSERT_NE(at, std::string::npos) << notes[0];
  EXPECT_GT(std::stod(notes[0].substr(at + 6)), 40.0) << notes[0];
}

}  // namespace
}  // namespace wideep::model
