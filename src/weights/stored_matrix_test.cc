// SPDX-License-Identifier: Apache-2.0
//
// Writes and reads every layout; reads small files written by compressed-tensors and torch; checks
// the errors for broken files.
#include "weights/stored_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <random>

#include "base/aligned_bytes.h"
#include "base/scratch_directory.h"
#include "kernels/pack_matrix.h"
#include "weights/checkpoint.h"
#include "weights/quantized_tensors.h"

namespace wideep::weights {
namespace {

using base::ScratchDirectory;
using kernels::PackedShape;
using kernels::QuantizedMatrix;
using kernels::WeightFormat;
using testing::HasSubstr;

constexpr WeightFormat kCoded[] = {WeightFormat::kFp8, WeightFormat::kInt8, WeightFormat::kInt4,
                                   WeightFormat::kMxfp4, WeightFormat::kNvfp4};

std::vector<float> random_floats(int count) {
  std::mt19937 rng(static_cast<unsigned>(count));
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(rng);
  return values;
}

void write(const ScratchDirectory& scratch, const std::vector<NamedTensor>& tensors) {
  std::vector<formats::TensorToWrite> list;
  for (const NamedTensor& tensor : tensors) list.push_back(tensor.to_write());
  const Status status = formats::write_safetensors(scratch.file("model.safetensors"), list);
  ASSERT_TRUE(status.ok()) << status.message();
}

std::vector<std::byte> packed(const StoredMatrix& matrix, WeightFormat format) {
  const PackedShape shape = default_form(format).shape(matrix.n(), matrix.k());
  base::AlignedBytes bytes(shape.bytes());
  const float scale = matrix.matrix_scale(shape);
  const int step = matrix.panels_together(shape);
  for (int panel = 0; panel < shape.num_panels(); panel += step) {
    const Status packed =
        matrix.pack(shape, scale, panel, std::min(panel + step, shape.num_panels()),
                    bytes.data() + static_cast<size_t>(panel) * shape.panel_bytes());
    EXPECT_TRUE(packed.ok()) << packed.message();
  }
  return {bytes.data(), bytes.data() + bytes.size()};
}

std::vector<std::byte> packed(WeightFormat format, const std::vector<float>& rows, int n, int k) {
  const PackedShape shape = kernels::packed_shape(format, n, k);
  base::AlignedBytes bytes(shape.bytes());
  kernels::pack_matrix(shape, rows.data(), bytes.data());
  return {bytes.data(), bytes.data() + bytes.size()};
}

TEST(StoredMatrix, ReadsWrittenCodesBitForBit) {
  const int n = 150, k = 256;
  const std::vector<float> rows = random_floats(n * k);
  for (const WeightFormat format : kCoded) {
    const ScratchDirectory scratch;
    const QuantizedMatrix coded =
        kernels::quantize_matrix(format, kernels::default_group(format), rows.data(), n, k);
    write(scratch, quantized_tensors("layer", coded));
    const auto checkpoint = Checkpoint::open(scratch.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto matrix = StoredMatrix::open(*checkpoint, "layer.weight", n, k);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    EXPECT_EQ(stored_form(*checkpoint, "layer.weight", k), default_form(format));
    EXPECT_EQ(matrix->coded().scale, coded.view.scale);
    EXPECT_EQ(packed(*matrix, format), packed(format, rows, n, k));
    // Packing in another format dequantises the codes first.
    std::vector<float> meant(rows.size());
    kernels::dequantize_rows(coded.view, 0, n, meant.data());
    EXPECT_EQ(packed(*matrix, WeightFormat::kBf16), packed(WeightFormat::kBf16, meant, n, k));
  }
}

TEST(StoredMatrix, QuantizingByPanelsEqualsQuantizingAtOnce) {
  const int n = 300, k = 200;
  const std::vector<float> rows = random_floats(n * k);
  const ScratchDirectory scratch;
  NamedTensor tensor{"w.weight", Dtype::kF32, {n, k}, std::vector<std::byte>(rows.size() * 4)};
  std::memcpy(tensor.bytes.data(), rows.data(), tensor.bytes.size());
  write(scratch, {tensor});
  const auto checkpoint = Checkpoint::open(scratch.path());
  const auto matrix = StoredMatrix::open(*checkpoint, "w.weight", n, k);
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  for (const WeightFormat format : kCoded) {
    EXPECT_EQ(packed(*matrix, format), packed(format, rows, n, k))
        << kernels::weight_format_name(format);
  }
}

// golden/layouts.safetensors holds the tensors that compressed-tensors and torch made of one random
// matrix in each layout, and the dequantised matrix as "<module>.expected".
TEST(StoredMatrix, ReadsFilesOfOtherLibraries) {
  const ScratchDirectory scratch;
  std::filesystem::copy(std::string(WIDEEP_SOURCE_DIR) + "/src/weights/golden/layouts.safetensors",
                        scratch.file("model.safetensors"));
  const auto checkpoint = Checkpoint::open(scratch.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  int modules = 0;
  for (const std::string& name : checkpoint->names()) {
    if (!name.ends_with(".expected")) continue;
    const std::string module = name.substr(0, name.size() - std::strlen(".expected"));
    const formats::TensorEntry* expected = checkpoint->find(name);
    const auto n = static_cast<int>(expected->shape[0]), k = static_cast<int>(expected->shape[1]);
    const auto matrix = StoredMatrix::open(*checkpoint, module + ".weight", n, k);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    EXPECT_TRUE(matrix->is_coded()) << module;
    std::vector<float> values(static_cast<size_t>(n) * k), wanted(values.size());
    matrix->to_float32(0, n, values.data());
    to_float32(*expected, wanted.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_FLOAT_EQ(values[i], wanted[i]) << module << " element " << i;
    }
    ++modules;
  }
  EXPECT_EQ(modules, 6);
}

TEST(StoredMatrix, GathersTheRowsOfGptOssExperts) {
  const int experts = 2, rows_each = 6, k = 64;
  const std::vector<float> rows = random_floats(experts * rows_each * k);
  const QuantizedMatrix coded =
      kernels::quantize_matrix(WeightFormat::kMxfp4, 32, rows.data(), experts * rows_each, k);
  const ScratchDirectory scratch;
  write(scratch, {{"gate_up_proj_blocks", Dtype::kU8, {experts, rows_each, 2, 16}, coded.codes},
                  {"gate_up_proj_scales", Dtype::kU8, {experts, rows_each, 2}, coded.scales}});
  const auto checkpoint = Checkpoint::open(scratch.path());
  const auto up = StoredMatrix::open_blocks(
      *checkpoint, "gate_up_proj",
      {.num_experts = 2, .expert = 1, .rows_each = rows_each, .first_row = 1, .row_step = 2}, 3, k);
  ASSERT_TRUE(up.ok()) << up.status().message();
  std::vector<float> values(3 * k), all(rows.size());
  up->to_float32(0, 3, values.data());
  kernels::dequantize_rows(coded.view, 0, experts * rows_each, all.data());
  for (int row = 0; row < 3; ++row) {
    const auto* expected = all.data() + (rows_each + 1 + 2 * row) * k;
    EXPECT_TRUE(std::equal(expected, expected + k, values.data() + row * k)) << "row " << row;
  }
}

TEST(StoredMatrix, OneScalePerRowBecomesGroupsOf128) {
  const int n = 3, k = 320;
  const std::vector<float> rows = random_floats(n * k);
  const QuantizedMatrix coded = kernels::quantize_matrix(WeightFormat::kInt8, k, rows.data(), n, k);
  const ScratchDirectory scratch;
  write(scratch, quantized_tensors("w", coded));
  const auto checkpoint = Checkpoint::open(scratch.path());
  const auto matrix = StoredMatrix::open(*checkpoint, "w.weight", n, k);
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  EXPECT_EQ(matrix->coded().group, k);
  EXPECT_EQ(stored_form(*checkpoint, "w.weight", k), (MatrixForm{WeightFormat::kInt8, 128}));
}

// ---- broken files ----

std::string error_of(WeightFormat format,
                     const std::function<void(std::vector<NamedTensor>&)>& breaking) {
  const int n = 4, k = 128;
  const std::vector<float> rows = random_floats(n * k);
  auto tensors = quantized_tensors(
      "m", kernels::quantize_matrix(format, kernels::default_group(format), rows.data(), n, k));
  breaking(tensors);
  const ScratchDirectory scratch;
  write(scratch, tensors);
  const auto checkpoint = Checkpoint::open(scratch.path());
  const auto matrix = StoredMatrix::open(*checkpoint, "m.weight", n, k);
  EXPECT_FALSE(matrix.ok());
  if (matrix.ok()) return "";
  EXPECT_EQ(matrix.status().exit_code(), 2);
  EXPECT_THAT(matrix.status().message(), testing::Not(HasSubstr("\n")));
  return matrix.status().message();
}

TEST(StoredMatrix, ErrorsNameTheBrokenTensor) {
  EXPECT_THAT(error_of(WeightFormat::kFp8, [](auto& t) { t.pop_back(); }),
              HasSubstr("expected weight_scale_inv beside F8_E4M3"));
  EXPECT_THAT(error_of(WeightFormat::kInt4, [](auto& t) { t[1].name = "m.other"; }),
              HasSubstr("'m.weight_scale' is not among"));
  EXPECT_THAT(error_of(WeightFormat::kInt8, [](auto& t) { t[2].bytes[0] = std::byte{5}; }),
              HasSubstr("expected [4, 128], found [5, 128]"));
  EXPECT_THAT(error_of(WeightFormat::kMxfp4, [](auto& t) { t[1].bytes[3] = std::byte{255}; }),
              HasSubstr("expected scales up to 2^125, found the code 255 at 3"));
  EXPECT_THAT(error_of(WeightFormat::kNvfp4, [](auto& t) { t[1].bytes[2] = std::byte{0x7f}; }),
              HasSubstr("expected scales from 0 to 448, found the code 0x7f at 2"));
  EXPECT_THAT(error_of(WeightFormat::kNvfp4, [](auto& t) { t.pop_back(); }),
              HasSubstr("'m.weight_scale_2' is not among"));
  EXPECT_THAT(error_of(WeightFormat::kInt4,
                       [](auto& t) {
                         t.push_back({"m.weight_zero_point", Dtype::kI8, {1}, {std::byte{0}}});
                       }),
              HasSubstr("expected symmetric quantisation with groups"));
}

}  // namespace
}  // namespace wideep::weights
