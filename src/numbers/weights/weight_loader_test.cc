// SPDX-License-Identifier: Apache-2.0
//
// Compares what the loader loads with packing whole tensors as float32.
#include "weights/weight_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>

#include "base/scratch_directory.h"
#include "weights/checkpoint.h"

namespace wideep::weights {
namespace {

using kernels::PackedShape;
using kernels::WeightFormat;

struct Stored {
  std::string name;
  Dtype dtype;
  int n, k;
  std::vector<float> values;  // representable in bf16 and F16 alike
  std::vector<std::byte> bytes;
};

Stored make_stored(const std::string& name, Dtype dtype, int n, int k, std::mt19937& rng) {
  Stored tensor{name, dtype, n, k, {}, {}};
  for (int i = 0; i < n * k; ++i) {
    const float value = static_cast<float>(static_cast<int>(rng() % 255) - 127) / 64.0f;
    tensor.values.push_back(value);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    // For normal numbers and zero, exponent and upper fraction bits are copied.
    const uint32_t half =
        value == 0.0f ? 0 : ((bits >> 16) & 0x8000) | (((bits >> 13) - 0x1c000) & 0x7fff);
    const uint32_t stored = dtype == Dtype::kF32 ? bits : dtype == Dtype::kBf16 ? bits >> 16 : half;
    const auto* raw = reinterpret_cast<const std::byte*>(&stored);
    tensor.bytes.insert(tensor.bytes.end(), raw, raw + dtype_bytes(dtype));
  }
  return tensor;
}

class LoadedCheckpoint : public testing::TestWithParam<WeightFormat> {
 protected:
  void SetUp() override {
    std::mt19937 rng(3);
    stored_ = {make_stored("bf16", Dtype::kBf16, 48, 130, rng),
               make_stored("odd", Dtype::kBf16, 37, 63, rng),
               make_stored("f32", Dtype::kF32, 48, 130, rng),
               make_stored("f16", Dtype::kF16, 5, 130, rng),
               make_stored("large", Dtype::kBf16, 520, 1024, rng)};
    std::vector<tensor_files::TensorToWrite> tensors;
    for (const Stored& tensor : stored_) {
      tensors.push_back({tensor.name, tensor.dtype, {tensor.n, tensor.k}, tensor.bytes});
    }
    ASSERT_TRUE(
        tensor_files::write_safetensors(directory_.file("model.safetensors"), tensors).ok());
    auto opened = Checkpoint::open(directory_.path());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    checkpoint_.emplace(std::move(opened).value());
    loader_.emplace(*checkpoint_, GetParam(), [this](uint64_t bytes) { read_ += bytes; }, &pool_);
  }

  // The stored tensors, concatenated by rows and packed at once.
  Matrix expected(const std::vector<std::string>& names, WeightFormat format) const {
    std::vector<float> rows;
    int k = 0;
    for (const std::string& name : names) {
      const Stored& tensor = find(name);
      rows.insert(rows.end(), tensor.values.begin(), tensor.values.end());
      k = tensor.k;
    }
    return WeightLoader::pack_rows(format, rows.data(), static_cast<int>(rows.size()) / k, k);
  }
  const Stored& find(const std::string& name) const {
    return *std::find_if(stored_.begin(), stored_.end(),
                         [&](const Stored& tensor) { return tensor.name == name; });
  }
  static void expect_equal(const Matrix& found, const Matrix& expected) {
    ASSERT_EQ(found.packed.shape, expected.packed.shape);
    ASSERT_EQ(found.packed.data, found.bytes.data());
    EXPECT_EQ(found.packed.scale, expected.packed.scale);
    EXPECT_EQ(std::memcmp(found.bytes.data(), expected.bytes.data(), expected.bytes.size()), 0);
  }

  base::ScratchDirectory directory_;
  std::vector<Stored> stored_;
  std::optional<Checkpoint> checkpoint_;
  base::ThreadPool pool_{3};
  uint64_t read_ = 0;
  std::optional<WeightLoader> loader_;
};

INSTANTIATE_TEST_SUITE_P(Format, LoadedCheckpoint,
                         testing::Values(WeightFormat::kF32, WeightFormat::kBf16,
                                         WeightFormat::kFp8, WeightFormat::kInt8,
                                         WeightFormat::kInt4, WeightFormat::kMxfp4,
                                         WeightFormat::kNvfp4),
                         [](const auto& test) {
                           return std::string(kernels::weight_format_name(test.param));
                         });

TEST_P(LoadedCheckpoint, MatricesEqualThePackedTensors) {
  std::vector<Matrix> found;
  for (const Stored& tensor : stored_) {
    auto matrix = loader_->matrix(tensor.name, tensor.n, tensor.k);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    found.push_back(std::move(matrix).value());
  }
  EXPECT_TRUE(loader_->run().ok());
  for (size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(stored_[i].name);
    expect_equal(found[i], expected({stored_[i].name}, GetParam()));
  }
  EXPECT_EQ(read_, checkpoint_->total_bytes());
}

// For every number of slices, also where a slice ends inside the 128 rows that share fp8 scales.
TEST_P(LoadedCheckpoint, SlicesEqualPanelsOfTheWholeMatrix) {
  for (const int parts : {1, 2, 3, 7}) {
    for (const char* name : {"bf16", "odd", "large"}) {
      SCOPED_TRACE(testing::Message() << name << " in " << parts);
      const Matrix whole = expected({name}, GetParam());
      const PackedShape shape = whole.packed.shape;
      std::vector<base::AlignedBytes> slices;
      for (int part = 0; part < parts; ++part) {
        const kernels::PanelRange panels = kernels::panels_of_part(shape, part, parts);
        slices.emplace_back(shape.panel_bytes() * static_cast<size_t>(panels.count()));
        const auto scale = loader_->pack(name, shape, panels, slices.back().data());
        ASSERT_TRUE(scale.ok()) << scale.status().message();
        EXPECT_EQ(*scale, whole.packed.scale);
      }
      EXPECT_TRUE(loader_->run().ok());
      const std::byte* at = whole.bytes.data();
      for (const base::AlignedBytes& slice : slices) {
        EXPECT_EQ(std::memcmp(slice.data(), at, slice.size()), 0);
        at += slice.size();
      }
      EXPECT_EQ(at, whole.bytes.data() + shape.bytes());
      EXPECT_EQ(std::exchange(read_, 0), checkpoint_->tensor_bytes(name));
    }
  }
}

TEST_P(LoadedCheckpoint, OneMatrixMayHaveAnotherFormat) {
  auto found = loader_->matrix("bf16", 48, 130, default_form(WeightFormat::kF32));
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(loader_->run().ok());
  expect_equal(*found, expected({"bf16"}, WeightFormat::kF32));
}

TEST_P(LoadedCheckpoint, RowsHaveTheRequestedDtype) {
  for (const Stored& tensor : stored_) {
    std::vector<float> floats(tensor.values.size());
    std::vector<Bf16> halves(tensor.values.size());
    ASSERT_TRUE(loader_
                    ->rows(tensor.name, tensor.n, tensor.k, Dtype::kF32,
                           reinterpret_cast<std::byte*>(floats.data()))
                    .ok());
    ASSERT_TRUE(loader_
                    ->rows(tensor.name, tensor.n, tensor.k, Dtype::kBf16,
                           reinterpret_cast<std::byte*>(halves.data()))
                    .ok());
    EXPECT_TRUE(loader_->run().ok());
    EXPECT_EQ(floats, tensor.values) << tensor.name;
    EXPECT_EQ(std::vector<float>(halves.begin(), halves.end()), tensor.values) << tensor.name;
  }
}

TEST_P(LoadedCheckpoint, ErrorsComeBeforeRunAndNameTheTensor) {
  const auto matrix = loader_->matrix("f32", 47, 130);
  ASSERT_FALSE(matrix.ok());
  EXPECT_THAT(matrix.status().message(),
              testing::AllOf(testing::HasSubstr("model.safetensors: tensor 'f32'"),
                             testing::HasSubstr("expected shape [47, 130], found [48, 130]")));
  EXPECT_FALSE(loader_->rows("nothing", 1, 1, Dtype::kF32, nullptr).ok());
  EXPECT_EQ(read_, 0u);
}

// A source with names, dtypes and shapes of compressed-tensors' packed integers, without bytes.
class PackedInt8 : public TensorSource {
 public:
  void add(const std::string& module, int n, int k, int groups) {
    tensors_[module + ".weight_packed"] = {.dtype = Dtype::kI32, .shape = {n, k / 4}};
    tensors_[module + ".weight_scale"] = {.dtype = Dtype::kBf16, .shape = {n, groups}};
  }
  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>&) const override {
    return invalid_input(name + ": has no bytes");
  }
  const tensor_files::TensorEntry* find(const std::string& name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, tensor_files::TensorEntry> tensors_;
};

TEST(WeightLoader, IntegersAreWithinTheirRange) {
  const base::ScratchDirectory directory;
  const std::vector<int64_t> wide = {0, 5, 2, 1};
  const std::vector<int32_t> narrow = {4, 3};
  ASSERT_TRUE(tensor_files::write_safetensors(
                  directory.file("model.safetensors"),
                  {{"wide", Dtype::kI64, {2, 2}, std::as_bytes(std::span(wide))},
                   {"narrow", Dtype::kI32, {2}, std::as_bytes(std::span(narrow))}})
                  .ok());
  const auto checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const WeightLoader loader(*checkpoint, WeightFormat::kF32);
  EXPECT_EQ(*loader.integers("wide", {2, 2}, 6), (std::vector<int32_t>{0, 5, 2, 1}));
  EXPECT_EQ(*loader.integers("narrow", {2}, 5), narrow);
  EXPECT_THAT(
      loader.integers("wide", {2, 2}, 5).status().message(),
      testing::HasSubstr("tensor 'wide': expected numbers from 0 to 4, found 5 at element 1"));
  EXPECT_FALSE(loader.integers("wide", {4}, 6).ok());
}

TEST(WeightLoader, MatricesOfOneExpertShareTheFinestGroup) {
  PackedInt8 tensors;
  tensors.add("gate", 64, 256, 4);  // groups of 64
  tensors.add("down", 256, 64, 1);  // one scale per row, valid for any groups
  tensors.add("odd", 64, 240, 5);   // groups of 48, which no group of 64 contains
  const WeightLoader loader(tensors, std::nullopt);
  EXPECT_EQ(loader.common_form({{"gate.weight", 256}, {"down.weight", 64}}),
            (MatrixForm{WeightFormat::kInt8, 64}));
  EXPECT_EQ(loader.common_form({{"gate.weight", 256}, {"odd.weight", 240}}),
            default_form(WeightFormat::kBf16));
}

}  // namespace
}  // namespace wideep::weights
