// SPDX-License-Identifier: Apache-2.0
//
// Writes matrices in the layouts of published files and reads them under canonical names.
#include "weights/named_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/scratch_directory.h"
#include "tensor_files/safetensors.h"
#include "weights/checkpoint.h"
#include "weights/quantized_tensors.h"
#include "weights/stored_matrix.h"

namespace wideep::weights {
namespace {

using base::ScratchDirectory;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kExperts = 3, kRows = 4, kColumns = 5;  // of gate and up; down has them exchanged

// Element (i, j) of a matrix of an expert: all elements of a test differ.
float value_of(int matrix, int expert, int64_t i, int64_t j) {
  return static_cast<float>(matrix * 1000 + expert * 100) + static_cast<float>(i * 10 + j);
}

constexpr int kGate = 1, kUp = 2, kDown = 3, kGateBias = 4, kUpBias = 5, kDownBias = 6;

struct FileTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// Fills a tensor of this shape with value(index).
template <typename Value>
FileTensor filled(const std::string& name, const std::vector<int64_t>& shape, Value value) {
  FileTensor tensor{name, shape, {}};
  std::vector<int64_t> index(shape.size(), 0);
  while (true) {
    tensor.values.push_back(value(index));
    size_t axis = shape.size();
    while (axis > 0 && ++index[axis - 1] == shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return tensor;
  }
}

class Files {
 public:
  explicit Files(const std::vector<FileTensor>& tensors) {
    std::vector<tensor_files::TensorToWrite> list;
    for (const FileTensor& tensor : tensors) {
      list.push_back({tensor.name, Dtype::kF32, tensor.shape,
                      std::as_bytes(std::span<const float>(tensor.values))});
    }
    const Status status = tensor_files::write_safetensors(scratch_.file("model.safetensors"), list);
    EXPECT_TRUE(status.ok()) << status.message();
    auto checkpoint = Checkpoint::open(scratch_.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    checkpoint_ = std::move(*checkpoint);
  }
  NamedTensors named(const TensorNames& names) const {
    return NamedTensors(checkpoint_, checkpoint_.names(), names, kExperts);
  }

 private:
  ScratchDirectory scratch_;
  Checkpoint checkpoint_;
};

// The elements of a slice, row by row, or the error.
std::vector<float> read(const NamedTensors& tensors, const std::string& name,
                        const std::vector<int64_t>& shape) {
  const auto slice = tensors.slice(name, shape);
  EXPECT_TRUE(slice.ok()) << slice.status().message();
  std::vector<float> values;
  for (int64_t i = 0; slice.ok() && i < slice->rows; ++i) {
    for (int64_t j = 0; j < slice->columns; ++j) {
      to_float32(*slice->entry, slice->first + i * slice->row_stride + j * slice->column_stride, 1,
                 &values.emplace_back());
    }
  }
  return values;
}

std::string error_of(const NamedTensors& tensors, const std::string& name,
                     const std::vector<int64_t>& shape) {
  const auto slice = tensors.slice(name, shape);
  return slice.ok() ? "" : slice.status().message();
}

std::vector<float> matrix(int which, int expert, int64_t n, int64_t k) {
  return filled("", {n, k}, [&](const auto& at) { return value_of(which, expert, at[0], at[1]); })
      .values;
}

std::vector<float> vector(int which, int expert, int64_t n) {
  return filled("", {n}, [&](const auto& at) { return value_of(which, expert, 0, at[0]); }).values;
}

// All that a family's experts may hold, under the canonical names.
void expect_experts(const NamedTensors& tensors, const std::string& experts, bool biases) {
  for (int e = 0; e < kExperts; ++e) {
    const std::string expert = experts + "." + std::to_string(e);
    EXPECT_EQ(read(tensors, expert + ".gate_proj.weight", {kRows, kColumns}),
              matrix(kGate, e, kRows, kColumns));
    EXPECT_EQ(read(tensors, expert + ".up_proj.weight", {kRows, kColumns}),
              matrix(kUp, e, kRows, kColumns));
    EXPECT_EQ(read(tensors, expert + ".down_proj.weight", {kColumns, kRows}),
              matrix(kDown, e, kColumns, kRows));
    if (!biases) continue;
    EXPECT_EQ(read(tensors, expert + ".gate_proj.bias", {kRows}), vector(kGateBias, e, kRows));
    EXPECT_EQ(read(tensors, expert + ".up_proj.bias", {kRows}), vector(kUpBias, e, kRows));
    EXPECT_EQ(read(tensors, expert + ".down_proj.bias", {kColumns}),
              vector(kDownBias, e, kColumns));
  }
}

// The element of gate (which) or up (which + 1) in row `row` of a fused matrix.
float gate_up_value(GateUp rows, int which, int expert, int64_t row, int64_t column) {
  if (rows == GateUp::kAlternating) {
    return value_of(which + static_cast<int>(row % 2), expert, row / 2, column);
  }
  return value_of(which + static_cast<int>(row / kRows), expert, row % kRows, column);
}

std::vector<FileTensor> fused_experts(const std::string& gate_up, const std::string& down,
                                      GateUp rows, bool transposed) {
  std::vector<FileTensor> tensors;
  std::vector<int64_t> gate_up_shape = {kExperts, 2 * kRows, kColumns};
  std::vector<int64_t> down_shape = {kExperts, kColumns, kRows};
  if (transposed) {
    std::swap(gate_up_shape[1], gate_up_shape[2]);
    std::swap(down_shape[1], down_shape[2]);
  }
  const int row = transposed ? 2 : 1, column = transposed ? 1 : 2;
  tensors.push_back(filled(gate_up, gate_up_shape, [&](const auto& at) {
    return gate_up_value(rows, kGate, static_cast<int>(at[0]), at[row], at[column]);
  }));
  tensors.push_back(filled(down, down_shape, [&](const auto& at) {
    return value_of(kDown, static_cast<int>(at[0]), at[row], at[column]);
  }));
  tensors.push_back(filled(gate_up + "_bias", {kExperts, 2 * kRows}, [&](const auto& at) {
    // A bias is a row: the part of the row is in its columns.
    const int64_t i = at[1];
    const bool up = rows == GateUp::kAlternating ? i % 2 == 1 : i >= kRows;
    return value_of(up ? kUpBias : kGateBias, static_cast<int>(at[0]), 0,
                    rows == GateUp::kAlternating ? i / 2 : i % kRows);
  }));
  tensors.push_back(filled(down + "_bias", {kExperts, kColumns}, [&](const auto& at) {
    return value_of(kDownBias, static_cast<int>(at[0]), 0, at[1]);
  }));
  return tensors;
}

TEST(NamedTensors, ReadsFusedExpertsInEveryFamily) {
  const Files files(fused_experts("model.layers.0.mlp.experts.gate_up_proj",
                                  "model.layers.0.mlp.experts.down_proj", GateUp::kHalves, false));
  expect_experts(files.named({}), "model.layers.0.mlp.experts", true);
}

TEST(NamedTensors, ReadsFusedExpertsAsTheFamilyStoresThem) {
  for (const GateUp rows : {GateUp::kHalves, GateUp::kAlternating}) {
    for (const bool transposed : {false, true}) {
      TensorNames names;
      names.fuse_experts("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj",
                         rows, transposed);
      const Files files(fused_experts("model.layers.0.feed_forward.experts.gate_up_proj",
                                      "model.layers.0.feed_forward.experts.down_proj", rows,
                                      transposed));
      expect_experts(files.named(names), "model.layers.0.mlp.experts", true);
    }
  }
}

TEST(NamedTensors, ReadsExpertsOfTheirOwnNames) {
  std::vector<FileTensor> tensors;
  for (int e = 0; e < kExperts; ++e) {
    const std::string expert = "model.layers.7.block_sparse_moe.experts." + std::to_string(e);
    tensors.push_back(
        {expert + ".w1.weight", {kRows, kColumns}, matrix(kGate, e, kRows, kColumns)});
    tensors.push_back({expert + ".w3.weight", {kRows, kColumns}, matrix(kUp, e, kRows, kColumns)});
    tensors.push_back(
        {expert + ".w2.weight", {kColumns, kRows}, matrix(kDown, e, kColumns, kRows)});
  }
  TensorNames names;
  names.rename("mlp.experts.*.gate_proj", "block_sparse_moe.experts.*.w1")
      .rename("mlp.experts.*.up_proj", "block_sparse_moe.experts.*.w3")
      .rename("mlp.experts.*.down_proj", "block_sparse_moe.experts.*.w2");
  const Files files(tensors);
  const NamedTensors named = files.named(names);
  expect_experts(named, "model.layers.7.mlp.experts", false);
  // The same files, asked for whole tensors.
  const auto entry = named.tensor("model.layers.7.mlp.experts.1.up_proj.weight", {kRows, kColumns});
  ASSERT_TRUE(entry.ok()) << entry.status().message();
  EXPECT_EQ(named.find("model.layers.7.mlp.experts.1.up_proj.weight"), *entry);
}

TEST(NamedTensors, ReadsHalvesOfFusedMlps) {
  TensorNames names;
  names.fuse_mlp("mlp.shared_experts", "shared_mlp.input_linear", "shared_mlp.output_linear");
  const Files files({filled("l.shared_mlp.input_linear.weight", {2 * kRows, kColumns},
                            [](const auto& at) {
                              return gate_up_value(GateUp::kHalves, kGate, 0, at[0], at[1]);
                            }),
                     {"l.shared_mlp.output_linear.weight",
                      {kColumns, kRows},
                      matrix(kDown, 0, kColumns, kRows)}});
  const NamedTensors named = files.named(names);
  EXPECT_EQ(read(named, "l.mlp.shared_experts.gate_proj.weight", {kRows, kColumns}),
            matrix(kGate, 0, kRows, kColumns));
  EXPECT_EQ(read(named, "l.mlp.shared_experts.up_proj.weight", {kRows, kColumns}),
            matrix(kUp, 0, kRows, kColumns));
  EXPECT_EQ(read(named, "l.mlp.shared_experts.down_proj.weight", {kColumns, kRows}),
            matrix(kDown, 0, kColumns, kRows));
  const auto entry = named.tensor("l.mlp.shared_experts.up_proj.weight", {kRows, kColumns});
  ASSERT_FALSE(entry.ok());
  EXPECT_THAT(entry.status().message(), HasSubstr("'l.shared_mlp.input_linear.weight'"));
  EXPECT_THAT(entry.status().message(), HasSubstr("found a larger one"));
}

TEST(NamedTensors, ExtentsOfOneMayDiffer) {
  const Files files({{"gate.bias", {1, 6}, vector(kGate, 0, 6)},
                     {"conv1d.weight", {kRows, 1, kColumns}, matrix(kUp, 0, kRows, kColumns)},
                     {"gate.weight", {1, kColumns}, vector(kDown, 0, kColumns)}});
  const NamedTensors named = files.named({});
  EXPECT_EQ(read(named, "gate.bias", {6}), vector(kGate, 0, 6));
  EXPECT_EQ(read(named, "conv1d.weight", {kRows, kColumns}), matrix(kUp, 0, kRows, kColumns));
  EXPECT_EQ(read(named, "gate.weight", {kColumns}), vector(kDown, 0, kColumns));
  EXPECT_EQ(read(named, "gate.weight", {1, kColumns}), vector(kDown, 0, kColumns));
  EXPECT_THAT(error_of(named, "conv1d.weight", {kColumns, kRows}),
              HasSubstr("'conv1d.weight': expected shape [5, 4], found [4, 1, 5]"));
  EXPECT_THAT(error_of(named, "conv1d.weight", {kRows * kColumns}), HasSubstr("expected shape"));
}

TEST(NamedTensors, FindsThePrefixOfTheFiles) {
  TensorNames names;
  names.prefix("", "language_model.").prefix("model.", "model.language_model.");
  const std::vector<float> norm = vector(kGate, 0, 2), head = vector(kUp, 0, 2);
  const Files inside({{"language_model.model.norm.weight", {2}, norm},
                      {"language_model.lm_head.weight", {2}, head},
                      {"vision_tower.norm.weight", {2}, head}});
  const Files below(
      {{"model.language_model.norm.weight", {2}, norm}, {"lm_head.weight", {2}, head}});
  const Files plain({{"model.norm.weight", {2}, norm}, {"lm_head.weight", {2}, head}});
  for (const Files* files : {&inside, &below, &plain}) {
    const NamedTensors named = files->named(names);
    EXPECT_EQ(read(named, "model.norm.weight", {2}), norm);
    EXPECT_EQ(read(named, "lm_head.weight", {2}), head);
  }
  const NamedTensors named = inside.named(names);
  EXPECT_EQ(named.published_name("model.norm.weight"), "language_model.model.norm.weight");
  EXPECT_TRUE(named.has("language_model.model.norm.weight"));  // means itself
  EXPECT_TRUE(named.has_prefix("language_model.model.norm.weight"));
  EXPECT_FALSE(named.has_prefix("vision_tower.norm.weight"));
  EXPECT_TRUE(plain.named(names).has_prefix("model.norm.weight"));
}

TEST(NamedTensors, TheFirstNameThatTheFilesHaveIsUsed) {
  TensorNames names;
  names.rename("mlp.gate", "mlp.gate.wg").rename("mlp.gate", "mlp.router");
  const Files files({{"l.mlp.router.weight", {2}, vector(kUp, 0, 2)},
                     {"l.mlp.gate.weight", {2}, vector(kGate, 0, 2)}});
  const NamedTensors named = files.named(names);
  EXPECT_EQ(read(named, "l.mlp.gate.weight", {2}), vector(kUp, 0, 2));
  EXPECT_EQ(named.published_name("l.mlp.gate.weight"), "l.mlp.router.weight");
  EXPECT_TRUE(named.has("l.mlp.gate.weight"));
  EXPECT_FALSE(named.has("l.mlp.gate.bias"));
  EXPECT_THAT(named.where("l.mlp.gate.weight"), HasSubstr("tensor 'l.mlp.router.weight'"));
  // Of those that are missing, the first one is named.
  EXPECT_THAT(error_of(named, "k.mlp.gate.weight", {2}),
              HasSubstr("tensor 'k.mlp.gate.wg.weight' is not among the 2 tensors"));
  EXPECT_EQ(named.where("k.mlp.gate.weight"), "k.mlp.gate.wg.weight");
}

TEST(NamedTensors, ErrorsNamePublishedTensorAndShape) {
  const Files files(
      fused_experts("mlp.experts.gate_up_proj", "mlp.experts.down_proj", GateUp::kHalves, false));
  const NamedTensors named = files.named({});
  EXPECT_THAT(error_of(named, "mlp.experts.0.gate_proj.weight", {kColumns, kRows}),
              HasSubstr("'mlp.experts.gate_up_proj': expected shape [3, 10, 4], found [3, 8, 5]"));
  EXPECT_THAT(error_of(named, "mlp.experts.3.down_proj.weight", {kColumns, kRows}),
              HasSubstr("'mlp.experts.down_proj': expected an expert below 3, found 3"));
  EXPECT_THAT(error_of(named, "mlp.experts.0.down_proj.weight", {1, kColumns, kRows}),
              HasSubstr("expected a vector or a matrix"));
  EXPECT_THAT(named.where("mlp.experts.2.up_proj.bias"),
              HasSubstr("tensor 'mlp.experts.gate_up_proj_bias', expert 2"));
}

TEST(NamedTensors, OwnNamesAreThoseOfTheFamily) {
  TensorNames names;
  names.prefix("", "language_model.")
      .fuse_experts("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj")
      .rename("mlp", "feed_forward");
  const Files files(fused_experts("language_model.feed_forward.experts.gate_up_proj",
                                  "language_model.feed_forward.experts.down_proj", GateUp::kHalves,
                                  false));
  const NamedTensors named = files.named(names);
  EXPECT_EQ(named.published_name("mlp.experts.1.up_proj.weight"),
            "language_model.feed_forward.experts.gate_up_proj");
  EXPECT_EQ(named.own_name("mlp.experts.1.up_proj.weight"),
            "language_model.feed_forward.experts.1.up_proj.weight");
}

TEST(NamedTensors, ModulesSayWhichRowsOfWhichExpertTheyAre) {
  TensorNames names;
  names.fuse_experts("mlp.experts.gate_up_proj", "mlp.experts.down_proj", GateUp::kAlternating,
                     true);
  std::vector<FileTensor> tensors = fused_experts(
      "l.0.mlp.experts.gate_up_proj", "l.0.mlp.experts.down_proj", GateUp::kAlternating, true);
  tensors.push_back({"l.1.mlp.experts.gate_up_proj_blocks", {1}, {0.0f}});
  tensors.push_back({"l.2.self_attn.q_proj.weight_packed", {1}, {0.0f}});
  const Files files(tensors);
  const NamedTensors named = files.named(names);

  const StoredModule floats = named.module("l.0.mlp.experts.2.up_proj");
  EXPECT_EQ(floats.name, "l.0.mlp.experts.gate_up_proj");
  EXPECT_TRUE(floats.source->has(floats.name));
  EXPECT_THAT((std::vector{floats.num_experts, floats.expert, floats.part, floats.parts}),
              ElementsAre(kExperts, 2, 1, 2));
  EXPECT_TRUE(floats.alternating);
  EXPECT_TRUE(floats.transposed);

  const StoredModule blocks = named.module("l.1.mlp.experts.0.gate_proj");
  EXPECT_EQ(blocks.name, "l.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(blocks.part, 0);
  EXPECT_TRUE(blocks.alternating);
  EXPECT_FALSE(blocks.transposed);  // rows of blocks are rows

  const StoredModule packed = named.module("l.2.self_attn.q_proj");
  EXPECT_EQ(packed.name, "l.2.self_attn.q_proj");
  EXPECT_EQ(packed.num_experts, 0);
  EXPECT_EQ(packed.parts, 1);
  EXPECT_EQ(named.module("l.3.mlp.experts.1.down_proj").name, "l.3.mlp.experts.down_proj");
}

// Quantised experts, each a matrix [2 n, k] of gate and up, stacked into tensors of all experts.
class StackedExperts {
 public:
  static constexpr int kWidth = 96, kHidden = 256;

  explicit StackedExperts(kernels::WeightFormat format) {
    for (int expert = 0; expert < kExperts; ++expert) {
      std::mt19937 rng(static_cast<unsigned>(expert));
      std::normal_distribution<float> normal;
      std::vector<float> rows(size_t{2} * kWidth * kHidden);
      for (float& value : rows) value = normal(rng);
      const kernels::QuantizedMatrix coded = kernels::quantize_matrix(
          format, kernels::default_group(format), rows.data(), 2 * kWidth, kHidden);
      meant_.emplace_back(rows.size());
      kernels::dequantize_rows(coded.view, 0, 2 * kWidth, meant_.back().data());
      stack(quantized_tensors("mlp.experts.gate_up_proj", coded));
    }
  }

  // The tensors as published, by the end of their names.
  NamedTensor& tensor(const std::string& end) {
    return *std::find_if(tensors_.begin(), tensors_.end(),
                         [&](const NamedTensor& each) { return each.name.ends_with(end); });
  }

  void expect_read(const TensorNames& names, GateUp rows) const {
    const ScratchDirectory scratch;
    std::vector<tensor_files::TensorToWrite> list;
    for (const NamedTensor& tensor : tensors_) list.push_back(tensor.to_write());
    const Status status = tensor_files::write_safetensors(scratch.file("model.safetensors"), list);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto files = Checkpoint::open(scratch.path());
    ASSERT_TRUE(files.ok()) << files.status().message();
    const NamedTensors named(*files, files->names(), names, kExperts);
    for (int expert = 0; expert < kExperts; ++expert) {
      for (const bool up : {false, true}) {
        const std::string name = "mlp.experts." + std::to_string(expert) +
                                 (up ? ".up_proj.weight" : ".gate_proj.weight");
        const auto matrix = StoredMatrix::open(named, name, kWidth, kHidden);
        ASSERT_TRUE(matrix.ok()) << matrix.status().message();
        std::vector<float> values(size_t{kWidth} * kHidden);
        matrix->to_float32(0, kWidth, values.data());
        EXPECT_EQ(values, part(expert, up, rows)) << name;
        const std::vector<std::string> stored = stored_names(named, name);
        EXPECT_EQ(stored.size(), tensors_.size()) << name;
        for (const std::string& each : stored) EXPECT_TRUE(files->has(each)) << each;
      }
    }
  }

 private:
  void stack(const std::vector<NamedTensor>& tensors) {
    const bool first = tensors_.empty();
    for (const NamedTensor& tensor : tensors) {
      if (tensor.name.ends_with("weight_shape")) continue;
      if (first) {
        tensors_.push_back(tensor);
        tensors_.back().shape.insert(tensors_.back().shape.begin(), kExperts);
      } else {
        std::vector<std::byte>& all = this->tensor(tensor.name).bytes;
        all.insert(all.end(), tensor.bytes.begin(), tensor.bytes.end());
      }
    }
  }

  std::vector<float> part(int expert, bool up, GateUp rows) const {
    std::vector<float> values;
    for (int row = 0; row < kWidth; ++row) {
      const int stored =
          rows == GateUp::kAlternating ? 2 * row + (up ? 1 : 0) : row + (up ? kWidth : 0);
      const auto begin = meant_[static_cast<size_t>(expert)].begin() + int64_t{stored} * kHidden;
      values.insert(values.end(), begin, begin + kHidden);
    }
    return values;
  }

  std::vector<std::vector<float>> meant_;
  std::vector<NamedTensor> tensors_;
};

TEST(NamedTensors, ReadsCodesOfFusedExperts) {
  using kernels::WeightFormat;
  for (const WeightFormat format : {WeightFormat::kFp8, WeightFormat::kInt8, WeightFormat::kInt4,
                                    WeightFormat::kMxfp4, WeightFormat::kNvfp4}) {
    SCOPED_TRACE(kernels::weight_format_name(format));
    StackedExperts experts(format);
    experts.expect_read({}, GateUp::kHalves);
    TensorNames alternating;
    alternating.fuse_experts("mlp.experts.gate_up_proj", "mlp.experts.down_proj",
                             GateUp::kAlternating);
    experts.expect_read(alternating, GateUp::kAlternating);
  }
}

// transformers calls the scales of its fused parameters so.
TEST(NamedTensors, ReadsFp8ParametersOfFusedExperts) {
  StackedExperts experts(kernels::WeightFormat::kFp8);
  experts.tensor(".weight").name = "mlp.experts.gate_up_proj";
  experts.tensor(".weight_scale_inv").name = "mlp.experts.gate_up_proj_scale_inv";
  experts.expect_read({}, GateUp::kHalves);
}

// The floats of this family are transposed, but not its blocks.
TEST(NamedTensors, ReadsBlocksOfGptOss) {
  StackedExperts experts(kernels::WeightFormat::kMxfp4);
  NamedTensor& blocks = experts.tensor(".weight_packed");
  blocks.name = "mlp.experts.gate_up_proj_blocks";
  blocks.shape = {kExperts, 2 * StackedExperts::kWidth, StackedExperts::kHidden / 32, 16};
  experts.tensor(".weight_scale").name = "mlp.experts.gate_up_proj_scales";
  TensorNames names;
  names.fuse_experts("mlp.experts.gate_up_proj", "mlp.experts.down_proj", GateUp::kAlternating,
                     true);
  experts.expect_read(names, GateUp::kAlternating);
}

// As DBRX publishes them: the experts' matrices below each other, that of down transposed; queries
// and keys of different sizes in one.
TEST(NamedTensors, StackedExpertsAndRangesOfRows) {
  const auto stacked = [](const char* name, int which, bool transposed) {
    return filled(name, {kExperts * kRows, kColumns}, [&](const auto& at) {
      const int expert = static_cast<int>(at[0] / kRows);
      const int64_t i = at[0] % kRows, j = at[1];
      return transposed ? value_of(which, expert, j, i) : value_of(which, expert, i, j);
    });
  };
  const Files files({stacked("w1", kGate, false), stacked("w2", kDown, true),
                     filled("qk.weight", {6, kColumns},
                            [](const auto& at) { return value_of(9, 0, at[0], at[1]); })});
  using Rows = TensorPart::Rows;
  const NamedTensors tensors =
      files.named(TensorNames()
                      .rename("experts.*.gate_proj", "w1")
                      .rename("experts.*.down_proj", "w2", {Rows::kAll, true})
                      .rename("q_proj", "qk", {Rows::kRange, false, 0, 6})
                      .rename("k_proj", "qk", {Rows::kRange, false, 4, 6}));
  for (int e = 0; e < kExperts; ++e) {
    const std::string expert = "experts." + std::to_string(e);
    EXPECT_EQ(read(tensors, expert + ".gate_proj.weight", {kRows, kColumns}),
              matrix(kGate, e, kRows, kColumns));
    EXPECT_EQ(read(tensors, expert + ".down_proj.weight", {kColumns, kRows}),
              matrix(kDown, e, kColumns, kRows));
  }
  const std::vector<float> all = matrix(9, 0, 6, kColumns);
  const std::vector<float> queries = read(tensors, "q_proj.weight", {4, kColumns});
  EXPECT_EQ(queries, std::vector<float>(all.begin(), all.begin() + 4 * kColumns));
  const std::vector<float> keys = read(tensors, "k_proj.weight", {2, kColumns});
  EXPECT_EQ(keys, std::vector<float>(all.begin() + 4 * kColumns, all.end()));
  EXPECT_THAT(error_of(tensors, "k_proj.weight", {3, kColumns}),
              HasSubstr("expected at least 7 rows, found 6"));
  EXPECT_THAT(error_of(tensors, "experts.0.gate_proj.weight", {kRows + 1, kColumns}),
              HasSubstr("w1"));
}

}  // namespace
}  // namespace wideep::weights
