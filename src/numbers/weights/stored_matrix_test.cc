// SPDX-License-Identifier: Apache-2.0
//
// Writes and reads every layout; reads small files written by compressed-tensors and torch; checks
// the errors for broken files.
#include "weights/stored_matrix.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>
#include <span>

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
  std::vector<tensor_files::TensorToWrite> list;
  for (const NamedTensor& tensor : tensors) list.push_back(tensor.to_write());
  const Status status = tensor_files::write_safetensors(scratch.file("model.safetensors"), list);
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
  std::filesystem::copy(
      std::string(WIDEEP_SOURCE_DIR) + "/src/numbers/weights/golden/layouts.safetensors",
      scratch.file("model.safetensors"));
  const auto checkpoint = Checkpoint::open(scratch.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  int modules = 0;
  for (const std::string& name : checkpoint->names()) {
    if (!name.ends_with(".expected")) continue;
    const std::string module = name.substr(0, name.size() - std::strlen(".expected"));
    const tensor_files::TensorEntry* expected = checkpoint->find(name);
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

// golden/make_layouts.py lets the packages that write quantised checkpoints store one matrix, and
// adds what they read back as "<module>.expected" and the format that keeps those values.
TEST(StoredMatrix, ReadsWhatPackagesWrite) {
  constexpr std::array kForms = {WeightFormat::kBf16, WeightFormat::kFp8,   WeightFormat::kInt8,
                                 WeightFormat::kInt4, WeightFormat::kMxfp4, WeightFormat::kNvfp4};
  const ScratchDirectory scratch;
  std::filesystem::copy(
      std::string(WIDEEP_SOURCE_DIR) + "/src/numbers/weights/golden/published.safetensors",
      scratch.file("model.safetensors"));
  const auto checkpoint = Checkpoint::open(scratch.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  int modules = 0;
  for (const std::string& name : checkpoint->names()) {
    if (!name.ends_with(".expected")) continue;
    const std::string module = name.substr(0, name.size() - std::strlen(".expected"));
    const tensor_files::TensorEntry& expected = *checkpoint->find(name);
    const auto n = static_cast<int>(expected.shape[0]), k = static_cast<int>(expected.shape[1]);
    const auto matrix = StoredMatrix::open(*checkpoint, module + ".weight", n, k);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    std::vector<float> values(static_cast<size_t>(n) * k), wanted(values.size());
    ASSERT_TRUE(matrix->to_finite(0, n, values.data()).ok());
    to_float32(expected, wanted.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_FLOAT_EQ(values[i], wanted[i]) << module << " element " << i;
    }
    const auto form = static_cast<size_t>(checkpoint->find(module + ".form")->bytes[0]);
    const WeightFormat format = stored_form(*checkpoint, module + ".weight", k).format;
    EXPECT_EQ(format, kForms[form]) << module;
    // Rows in the middle are the same, and every tensor of the module was read.
    std::vector<float> middle(static_cast<size_t>(5) * k);
    matrix->to_float32(9, 14, middle.data());
    EXPECT_TRUE(std::equal(middle.begin(), middle.end(), values.begin() + 9 * k)) << module;
    for (const std::string& each : checkpoint->names()) {
      const bool is_part = each.starts_with(module + ".") && !each.ends_with(".expected") &&
                           !each.ends_with(".form");
      const auto names = stored_names(*checkpoint, module + ".weight");
      EXPECT_EQ(std::find(names.begin(), names.end(), each) != names.end(), is_part) << each;
    }
    ++modules;
  }
  EXPECT_EQ(modules, 24);
}

// A checkpoint whose only module is a part of a fused one.
class OnePart : public TensorSource {
 public:
  OnePart(const Checkpoint& checkpoint, const StoredModule& module)
      : checkpoint_(checkpoint), module_(module) {
    module_.source = &checkpoint_;
  }
  Result<const tensor_files::TensorEntry*> tensor(
      const std::string& name, const std::vector<int64_t>& shape) const override {
    return checkpoint_.tensor(name, shape);
  }
  Result<const tensor_files::TensorEntry*> tensor(const std::string& name,
                                                  const std::vector<int64_t>& shape,
                                                  std::span<const Dtype> dtypes) const override {
    return checkpoint_.tensor(name, shape, dtypes);
  }
  StoredModule module(const std::string&) const override { return module_; }

 private:
  const Checkpoint& checkpoint_;
  StoredModule module_;
};

kernels::CodedMatrix row_of(const kernels::CodedMatrix& matrix, int row) {
  kernels::CodedMatrix part = matrix;
  part.n = 1;
  part.codes += static_cast<size_t>(row) * matrix.row_bytes();
  const size_t scale_bytes = kernels::has_byte_scales(matrix.format) ? 1 : sizeof(float);
  part.scales =
      static_cast<const std::byte*>(matrix.scales) + matrix.scale_index(row, 0) * scale_bytes;
  return part;
}

// Experts in one tensor, whose rows are gate and up: halves, or alternating as in GPT-OSS.
TEST(StoredMatrix, ReadsPartsOfFusedExperts) {
  const int experts = 3, n = 128, k = 128;
  const std::vector<float> rows = random_floats(experts * 2 * n * k);
  for (const WeightFormat format : kCoded) {
    const QuantizedMatrix coded = kernels::quantize_matrix(format, kernels::default_group(format),
                                                           rows.data(), experts * 2 * n, k);
    std::vector<float> all(rows.size());
    kernels::dequantize_rows(coded.view, 0, experts * 2 * n, all.data());
    std::vector<NamedTensor> tensors = quantized_tensors("experts.gate_up_proj", coded);
    for (NamedTensor& tensor : tensors) {
      if (tensor.shape.size() != 2) continue;
      tensor.shape.insert(tensor.shape.begin(), experts);
      tensor.shape[1] /= experts;
    }
    const ScratchDirectory scratch;
    write(scratch, tensors);
    const auto checkpoint = Checkpoint::open(scratch.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    for (const bool alternating : {false, true}) {
      StoredModule module;
      module.name = "experts.gate_up_proj";
      module.num_experts = experts;
      module.expert = 1;
      module.parts = 2;
      module.part = 1;
      module.alternating = alternating;
      const OnePart source(*checkpoint, module);
      EXPECT_EQ(stored_form(source, "up.weight", k), default_form(format));
      const auto up = StoredMatrix::open(source, "up.weight", n, k);
      ASSERT_TRUE(up.ok()) << up.status().message();
      std::vector<float> values(static_cast<size_t>(n) * k), expected;
      up->to_float32(0, n, values.data());
      const PackedShape shape = kernels::packed_shape(format, n, k);
      base::AlignedBytes bytes(shape.bytes());
      kernels::begin_pack(shape, 0, shape.num_panels(), bytes.data());
      for (int row = 0; row < n; ++row) {
        const int from = 2 * n + (alternating ? 1 + 2 * row : n + row);
        expected.insert(expected.end(), all.begin() + from * k, all.begin() + (from + 1) * k);
        kernels::pack_codes(shape, row_of(coded.view, from), row, bytes.data());
      }
      EXPECT_EQ(values, expected) << kernels::weight_format_name(format);
      EXPECT_EQ(packed(*up, format), std::vector(bytes.data(), bytes.data() + bytes.size()))
          << kernels::weight_format_name(format);
    }
  }
}

TEST(StoredMatrix, ReadsBlocksOfGptOss) {
  const int experts = 2, n = 3, k = 96;
  const std::vector<float> rows = random_floats(experts * 2 * n * k);
  const QuantizedMatrix coded =
      kernels::quantize_matrix(WeightFormat::kMxfp4, 32, rows.data(), experts * 2 * n, k);
  const ScratchDirectory scratch;
  write(scratch, {{"gate_up_proj_blocks", Dtype::kU8, {experts, 2 * n, 3, 16}, coded.codes},
                  {"gate_up_proj_scales", Dtype::kU8, {experts, 2 * n, 3}, coded.scales}});
  const auto checkpoint = Checkpoint::open(scratch.path());
  StoredModule module;
  module.name = "gate_up_proj";
  module.num_experts = experts;
  module.expert = 1;
  module.parts = 2;
  module.part = 1;
  module.alternating = true;
  const OnePart source(*checkpoint, module);
  const auto up = StoredMatrix::open(source, "up.weight", n, k);
  ASSERT_TRUE(up.ok()) << up.status().message();
  std::vector<float> values(n * k), all(rows.size());
  up->to_float32(0, n, values.data());
  kernels::dequantize_rows(coded.view, 0, experts * 2 * n, all.data());
  for (int row = 0; row < n; ++row) {
    const auto* expected = all.data() + (2 * n + 1 + 2 * row) * k;
    EXPECT_TRUE(std::equal(expected, expected + k, values.data() + row * k)) << "row " << row;
  }
  size_t bytes = 0;
  for (const auto& each : up->sources()) bytes += each.size();
  EXPECT_EQ(bytes, (coded.codes.size() + coded.scales.size()) / 4);  // experts × parts
}

template <typename T>
NamedTensor tensor_of(const std::string& name, Dtype dtype, const std::vector<int64_t>& shape,
                      const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {name, dtype, shape, {bytes.begin(), bytes.end()}};
}

// fp8 with one scale for blocks of rows × columns, which may be one row, all rows or all columns.
TEST(StoredMatrix, Fp8ScalesOfAnyBlocks) {
  std::mt19937 rng(11);
  const auto pick = [&](std::initializer_list<int> of) { return of.begin()[rng() % of.size()]; };
  for (int round = 0; round < 60; ++round) {
    const int n = 1 + static_cast<int>(rng() % 300), k = 1 + static_cast<int>(rng() % 400);
    const int rows = pick({1, 16, 64, 128, n}), columns = pick({32, 128, 256, k});
    const int lines = (n + rows - 1) / rows, groups = (k + columns - 1) / columns;
    std::vector<uint8_t> codes(static_cast<size_t>(n) * k);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(rng() % 0x7f | (rng() % 2) << 7);
    const bool powers = rng() % 2 == 0;
    std::vector<float> scales(static_cast<size_t>(lines) * groups);
    std::vector<uint8_t> exponents;
    for (float& scale : scales) {
      exponents.push_back(static_cast<uint8_t>(100 + rng() % 20));
      scale = powers ? std::ldexp(1.0f, exponents.back() - 127)
                     : 0.001f * static_cast<float>(1 + rng() % 1000);
    }
    std::vector<int64_t> shape = {lines, groups};
    if (groups == 1 && rng() % 2 == 0) shape = {lines};
    if (rng() % 4 == 0) shape = {lines, 1, groups, 1};  // ModelOpt
    if (lines * groups == 1 && rng() % 2 == 0) shape = {};
    const ScratchDirectory scratch;
    const std::string name = rng() % 2 == 0 ? "m.weight_scale" : "m.weight_scale_inv";
    write(scratch, {tensor_of("m.weight", Dtype::kF8E4M3, {n, k}, codes),
                    powers ? tensor_of(name, Dtype::kF8E8M0, shape, exponents)
                           : tensor_of(name, Dtype::kF32, shape, scales)});
    const auto checkpoint = Checkpoint::open(scratch.path());
    const auto matrix = StoredMatrix::open(*checkpoint, "m.weight", n, k);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    std::vector<float> values(codes.size()), expected(codes.size());
    matrix->to_float32(0, n, values.data());
    for (int row = 0; row < n; ++row) {
      for (int i = 0; i < k; ++i) {
        F8E4M3 element;
        element.bits = codes[static_cast<size_t>(row) * k + i];
        expected[static_cast<size_t>(row) * k + i] =
            scales[static_cast<size_t>(row / rows) * groups + i / columns] *
            static_cast<float>(element);
      }
    }
    ASSERT_EQ(values, expected) << n << " × " << k << " in " << rows << " × " << columns;
    const bool keeps_codes = columns % 128 == 0 || groups == 1;
    EXPECT_EQ(stored_form(*checkpoint, "m.weight", k),
              default_form(keeps_codes ? WeightFormat::kFp8 : WeightFormat::kBf16));
    EXPECT_EQ(packed(*matrix, WeightFormat::kBf16), packed(WeightFormat::kBf16, expected, n, k));
    if (!keeps_codes) continue;
    // The packed codes with the scale of each row.
    std::vector<float> of_rows;
    for (int row = 0; row < n; ++row) {
      const float* line = scales.data() + static_cast<size_t>(row / rows) * groups;
      of_rows.insert(of_rows.end(), line, line + groups);
    }
    const kernels::CodedMatrix coded = {.format = WeightFormat::kFp8,
                                        .n = n,
                                        .k = k,
                                        .group = groups == 1 ? k : columns,
                                        .codes = reinterpret_cast<const std::byte*>(codes.data()),
                                        .scales = of_rows.data()};
    const PackedShape form = kernels::packed_shape(WeightFormat::kFp8, n, k);
    base::AlignedBytes bytes(form.bytes());
    kernels::begin_pack(form, 0, form.num_panels(), bytes.data());
    kernels::pack_codes(form, coded, 0, bytes.data());
    EXPECT_EQ(packed(*matrix, WeightFormat::kFp8),
              std::vector(bytes.data(), bytes.data() + bytes.size()));
  }
}

// Codes, zero points and scales of random integers in every layout that has zero points.
TEST(StoredMatrix, ZeroPointsOfAnyShape) {
  std::mt19937 rng(12);
  for (int round = 0; round < 60; ++round) {
    const int layout = round % 3;  // compressed-tensors, GPTQ, AWQ
    const int bits = layout < 2 && rng() % 2 == 0 ? 8 : 4, per_word = 32 / bits;
    const int group = 32 << rng() % 3, groups = 2 + static_cast<int>(rng() % 3);
    const int n = 8 * (1 + static_cast<int>(rng() % 12)), k = group * groups;
    const auto code = [&] { return static_cast<uint32_t>(rng() % (1u << bits)); };
    std::vector<uint32_t> q(static_cast<size_t>(n) * k), z(static_cast<size_t>(n) * groups);
    std::vector<float> scales(z.size()), expected(q.size());
    for (uint32_t& each : q) each = code();
    for (uint32_t& each : z) each = code();
    for (float& each : scales) each = 0.01f * static_cast<float>(1 + rng() % 100);
    for (int row = 0; row < n; ++row) {
      for (int i = 0; i < k; ++i) {
        const size_t at = static_cast<size_t>(row) * k + i;
        const size_t of_group = static_cast<size_t>(row) * groups + i / group;
        expected[at] = scales[of_group] *
                       static_cast<float>(static_cast<int>(q[at]) - static_cast<int>(z[of_group]));
      }
    }
    // word(line, column, value of (row, k)): packs along the first or second index.
    const auto pack = [&](int lines, int columns, bool down, auto value) {
      std::vector<uint32_t> words(static_cast<size_t>(lines) * columns / per_word);
      for (int i = 0; i < lines; ++i) {
        for (int j = 0; j < columns; ++j) {
          const int from = down ? i : j;
          int at = from % per_word;
          if (layout == 2) at = std::array{0, 4, 1, 5, 2, 6, 3, 7}[static_cast<size_t>(at)];
          const size_t word = down ? static_cast<size_t>(i / per_word) * columns + j
                                   : static_cast<size_t>(i) * (columns / per_word) + j / per_word;
          words[word] |= value(i, j) << (at * bits);
        }
      }
      return words;
    };
    const auto q_at = [&](int row, int i) { return q[static_cast<size_t>(row) * k + i]; };
    const auto z_at = [&](int row, int i) { return z[static_cast<size_t>(row) * groups + i]; };
    std::vector<float> by_group;
    for (int i = 0; i < groups; ++i) {
      for (int row = 0; row < n; ++row) {
        by_group.push_back(scales[static_cast<size_t>(row) * groups + i]);
      }
    }
    std::vector<NamedTensor> tensors;
    if (layout == 0) {
      tensors = {
          tensor_of("m.weight_packed", Dtype::kI32, {n, k / per_word}, pack(n, k, false, q_at)),
          tensor_of("m.weight_zero_point", Dtype::kI32, {n / per_word, groups},
                    pack(n, groups, true, z_at)),
          tensor_of("m.weight_scale", Dtype::kF32, {n, groups}, scales)};
    } else {
      const auto turned_q = [&](int i, int row) { return q_at(row, i); };
      const uint32_t less = layout == 1 ? 1 : 0, mask = (1u << bits) - 1;
      const auto turned_z = [&](int i, int row) { return (z_at(row, i) - less) & mask; };
      const std::vector<int64_t> shape =
          layout == 1 ? std::vector<int64_t>{k / per_word, n} : std::vector<int64_t>{k, n / 8};
      tensors = {tensor_of("m.qweight", Dtype::kI32, shape, pack(k, n, layout == 1, turned_q)),
                 tensor_of("m.qzeros", Dtype::kI32, {groups, n / per_word},
                           pack(groups, n, false, turned_z)),
                 tensor_of("m.scales", Dtype::kF32, {groups, n}, by_group)};
    }
    const ScratchDirectory scratch;
    write(scratch, tensors);
    const auto checkpoint = Checkpoint::open(scratch.path());
    const auto matrix = StoredMatrix::open(*checkpoint, "m.weight", n, k);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    std::vector<float> values(q.size());
    matrix->to_float32(0, n, values.data());
    ASSERT_EQ(values, expected) << "layout " << layout << " bits " << bits;
    const MatrixForm form = stored_form(*checkpoint, "m.weight", k);
    EXPECT_EQ(form.format, bits == 4 ? WeightFormat::kInt8 : WeightFormat::kBf16);
    EXPECT_EQ(packed(*matrix, WeightFormat::kBf16), packed(WeightFormat::kBf16, expected, n, k));
  }
}

// A module "m" of the checkpoint, of which quantization_config says something.
Result<StoredMatrix> open_declared(const Checkpoint& checkpoint, const DeclaredLayout& declared,
                                   int n, int k, MatrixForm* form = nullptr) {
  StoredModule module;
  module.name = "m";
  module.declared = &declared;
  const OnePart source(checkpoint, module);
  if (form != nullptr) *form = stored_form(source, "m.weight", k);
  return StoredMatrix::open(source, "m.weight", n, k);
}

// GPTQ with codes that are all `code`, and stored zero points of which the first may differ.
std::vector<NamedTensor> gptq(int bits, uint32_t code, uint32_t zero, uint32_t first_zero, int n,
                              int k) {
  const auto all = [&](uint32_t value, size_t count) {
    uint32_t word = 0;
    for (int i = 0; i < 32 / bits; ++i) word |= value << (i * bits);
    return std::vector<uint32_t>(count, word);
  };
  const int per_word = 32 / bits;
  auto zeros = all(zero, static_cast<size_t>(2 * n / per_word));
  zeros[0] = all(first_zero, 1)[0];
  return {tensor_of("m.qweight", Dtype::kI32, {k / per_word, n},
                    all(code, static_cast<size_t>(k / per_word * n))),
          tensor_of("m.qzeros", Dtype::kI32, {2, n / per_word}, zeros),
          tensor_of("m.scales", Dtype::kF32, {2, n},
                    std::vector<float>(static_cast<size_t>(2 * n), 0.5f))};
}

// The zero of a symmetric file is the middle, however it is stored: minus 1 or not.
TEST(StoredMatrix, ZeroPointsOfSymmetricGptq) {
  const int n = 16, k = 64;
  const auto first_value = [&](const std::vector<NamedTensor>& tensors,
                               const DeclaredLayout& declared, MatrixForm* form) -> Result<float> {
    const ScratchDirectory scratch;
    write(scratch, tensors);
    const auto checkpoint = Checkpoint::open(scratch.path());
    const auto matrix = open_declared(*checkpoint, declared, n, k, form);
    if (!matrix.ok()) return matrix.status();
    std::vector<float> values(static_cast<size_t>(n) * k);
    matrix->to_float32(0, n, values.data());
    return values[0];
  };
  for (const int bits : {4, 8}) {
    const uint32_t middle = bits == 8 ? 128 : 8;
    const DeclaredLayout symmetric = {.bits = bits, .symmetric = true};
    MatrixForm form;
    for (const uint32_t zero : {middle - 1, middle}) {
      const auto value = first_value(gptq(bits, middle + 3, zero, zero, n, k), symmetric, &form);
      ASSERT_TRUE(value.ok()) << value.status().message();
      EXPECT_EQ(*value, 1.5f) << bits << " bits, stored " << zero;
      EXPECT_EQ(form, (MatrixForm{bits == 8 ? WeightFormat::kInt8 : WeightFormat::kInt4, 32}));
    }
    for (const auto& [zero, first] : {std::pair(middle, middle - 1), std::pair(middle - 1, middle),
                                      std::pair(middle - 2, middle - 2), std::pair(0u, 0u)}) {
      const auto value = first_value(gptq(bits, middle, zero, first, n, k), symmetric, &form);
      EXPECT_THAT(value.status().message(),
                  HasSubstr(fmt::format("'m.qzeros': expected zero points of {}, all stored as {} "
                                        "or all as {}, because",
                                        middle, middle - 1, middle)));
    }
    // Without symmetry, zero points are stored minus 1, and those that would be read otherwise with
    // it are refused where nothing says which.
    const DeclaredLayout others = {.bits = bits, .symmetric = false};
    EXPECT_EQ(first_value(gptq(bits, middle + 3, middle, middle, n, k), others, &form).value(),
              1.0f);
    EXPECT_THAT(first_value(gptq(bits, middle, middle, middle, n, k), {}, &form).status().message(),
                HasSubstr(fmt::format("all are {}, which means {} in a file with sym: true and {}",
                                      middle, middle, middle + 1)));
  }
}

// What quantization_config says of all matrices is compared with each of them.
TEST(StoredMatrix, ShapesThatContradictTheConfigAreRefused) {
  const int n = 256, k = 512;
  const std::vector<uint8_t> codes(static_cast<size_t>(n) * k, 0x38);
  const DeclaredLayout blocks = {
      .block_rows = 128, .block_columns = 128, .block_key = "weight_block_size"};
  for (const auto& shape : {std::vector<int64_t>{2, 4}, {4, 2}, {256, 1}, {2, 2}}) {
    const ScratchDirectory scratch;
    std::vector<float> scales(static_cast<size_t>(shape[0] * shape[1]), 1.0f);
    write(scratch, {tensor_of("m.weight", Dtype::kF8E4M3, {n, k}, codes),
                    tensor_of("m.weight_scale_inv", Dtype::kF32, shape, scales)});
    const auto checkpoint = Checkpoint::open(scratch.path());
    EXPECT_TRUE(open_declared(*checkpoint, {}, n, k).ok()) << "as long as nothing is said";
    const auto matrix = open_declared(*checkpoint, blocks, n, k);
    EXPECT_EQ(matrix.ok(), shape == (std::vector<int64_t>{2, 4}));
    if (matrix.ok()) continue;
    EXPECT_THAT(matrix.status().message(),
                HasSubstr("'m.weight_scale_inv': expected shape [2, 4], a scale for blocks of 128 "
                          "× 128 as quantization_config.weight_block_size says, found ["));
  }
  const ScratchDirectory scratch;
  write(scratch, gptq(4, 9, 7, 7, 16, 64));
  const auto checkpoint = Checkpoint::open(scratch.path());
  const auto complaint = [&](const DeclaredLayout& declared) {
    return open_declared(*checkpoint, declared, 16, 64).status().message();
  };
  EXPECT_EQ(complaint({.bits = 4, .group = 32, .group_key = "group_size"}), "");
  EXPECT_THAT(complaint({.bits = 8}), HasSubstr("expected codes of 8 bits, as"));
  EXPECT_THAT(complaint({.group = 64, .group_key = "group_size"}),
              HasSubstr("'m.scales': expected scales for 1 groups of 64 columns, as "
                        "quantization_config.group_size says, found 2"));
  EXPECT_THAT(complaint({.group = -1, .group_key = "group_size"}), HasSubstr("1 groups of 64"));
}

// Scales below 0 turn signs around, and those of 0 lose the codes of their group, unless these are
// zeros. AutoRound chooses the signs of its scales.
TEST(StoredMatrix, ScalesMustBePositive) {
  const int n = 16, k = 64;
  const auto complaint = [&](std::vector<NamedTensor> tensors, float scale,
                             const DeclaredLayout& declared) {
    std::memcpy(tensors.back().bytes.data() + 3 * sizeof(float), &scale, sizeof(scale));
    const ScratchDirectory scratch;
    write(scratch, tensors);
    const auto checkpoint = Checkpoint::open(scratch.path());
    return open_declared(*checkpoint, declared, n, k).status().message();
  };
  const auto fp8 = [&](uint8_t code) {
    const std::vector<uint8_t> codes(static_cast<size_t>(n) * k, code);
    return std::vector<NamedTensor>{
        tensor_of("m.weight", Dtype::kF8E4M3, {n, k}, codes),
        tensor_of("m.weight_scale", Dtype::kF32, {n, 1}, std::vector<float>(n, 1.0f))};
  };
  const DeclaredLayout auto_round = {.has_negative_scales = true};
  for (const auto& tensors : {gptq(4, 9, 7, 7, n, k), gptq(8, 9, 127, 127, n, k), fp8(0x38)}) {
    EXPECT_EQ(complaint(tensors, 0.25f, {}), "");
    EXPECT_THAT(complaint(tensors, -0.25f, {}), HasSubstr("expected positive scales, found -0.25"));
    EXPECT_THAT(
        complaint(tensors, 0.0f, {}),
        HasSubstr("expected positive scales, found 0 at 3, of codes that are not all zero"));
    EXPECT_EQ(complaint(tensors, -0.25f, auto_round) == "", tensors.size() == 3);
  }
  for (const auto& zeros : {gptq(4, 8, 7, 7, n, k), gptq(8, 128, 127, 127, n, k), fp8(0x80)}) {
    EXPECT_EQ(complaint(zeros, 0.0f, {}), "");
  }
}

TEST(StoredMatrix, ColumnsInAnotherOrderAreRefused) {
  const int n = 8, k = 64;
  const std::vector<uint32_t> codes(static_cast<size_t>(k / 8 * n)), zeros(2, 0x77777777);
  std::vector<int32_t> groups(k);
  for (int i = 0; i < k; ++i) groups[static_cast<size_t>(i)] = i / 32;
  for (const bool ordered : {true, false}) {
    if (!ordered) std::swap(groups[3], groups[40]);
    const ScratchDirectory scratch;
    write(scratch, {tensor_of("m.qweight", Dtype::kI32, {k / 8, n}, codes),
                    tensor_of("m.qzeros", Dtype::kI32, {2, 1}, zeros),
                    tensor_of("m.scales", Dtype::kF32, {2, n}, std::vector<float>(2 * n, 1.0f)),
                    tensor_of("m.g_idx", Dtype::kI32, {k}, groups)});
    const auto checkpoint = Checkpoint::open(scratch.path());
    const auto matrix = StoredMatrix::open(*checkpoint, "m.weight", n, k);
    EXPECT_EQ(matrix.ok(), ordered);
    EXPECT_EQ(stored_form(*checkpoint, "m.weight", k), (MatrixForm{WeightFormat::kInt4, 32}));
    if (!ordered) {
      EXPECT_THAT(matrix.status().message(),
                  HasSubstr("'m.g_idx': expected columns in order, found column 3 in group 1"));
    }
  }
}

// The codes of DeepSeek-V4's experts: two in an I8, with F8_E8M0 scales.
TEST(StoredMatrix, ReadsFourBitsOfDeepseek) {
  const int n = 20, k = 96;
  const std::vector<float> rows = random_floats(n * k);
  const QuantizedMatrix coded =
      kernels::quantize_matrix(WeightFormat::kMxfp4, 32, rows.data(), n, k);
  const ScratchDirectory scratch;
  write(scratch, {{"w1.weight", Dtype::kI8, {n, k / 2}, coded.codes},
                  {"w1.scale", Dtype::kF8E8M0, {n, k / 32}, coded.scales}});
  const auto checkpoint = Checkpoint::open(scratch.path());
  const auto matrix = StoredMatrix::open(*checkpoint, "w1.weight", n, k);
  ASSERT_TRUE(matrix.ok()) << matrix.status().message();
  EXPECT_EQ(packed(*matrix, WeightFormat::kMxfp4), packed(WeightFormat::kMxfp4, rows, n, k));
}

// Slices of floats: halves, alternating rows and transposed matrices of fused experts.
TEST(StoredMatrix, ReadsFloatsThroughSlices) {
  class OneSlice : public TensorSource {
   public:
    explicit OneSlice(const TensorSlice& slice) : slice_(slice) {}
    Result<const tensor_files::TensorEntry*> tensor(const std::string&,
                                                    const std::vector<int64_t>&) const override {
      return slice_.entry;
    }
    Result<TensorSlice> slice(const std::string&, const std::vector<int64_t>&) const override {
      return slice_;
    }

   private:
    TensorSlice slice_;
  };
  const int n = 40, k = 24;
  const std::vector<float> stored = random_floats(3 * n * k);
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    std::vector<Bf16> rounded;
    for (const float value : stored) rounded.emplace_back(value);
    const bool wide = dtype == Dtype::kF32;
    const tensor_files::TensorEntry entry = {
        dtype,
        {3 * n, k},
        wide ? std::as_bytes(std::span(stored)) : std::as_bytes(std::span(rounded))};
    const TensorSlice slices[] = {{&entry, n * k, n, k, k, 1},
                                  {&entry, n * k + k, n, k, 2 * k, 1},
                                  {&entry, n * k, n, k, 1, n},
                                  TensorSlice::whole(entry)};
    for (const TensorSlice& slice : slices) {
      const auto rows = static_cast<int>(slice.rows);
      const OneSlice source(slice);
      const auto matrix = StoredMatrix::open(source, "w.weight", rows, k);
      ASSERT_TRUE(matrix.ok()) << matrix.status().message();
      std::vector<float> expected, values(static_cast<size_t>(rows) * k);
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < k; ++i) {
          const auto at =
              static_cast<size_t>(slice.first + row * slice.row_stride + i * slice.column_stride);
          expected.push_back(wide ? stored[at] : static_cast<float>(rounded[at]));
        }
      }
      matrix->to_float32(0, rows, values.data());
      EXPECT_EQ(values, expected);
      for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
        EXPECT_EQ(packed(*matrix, format), packed(format, expected, rows, k));
      }
    }
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
              HasSubstr("expected weight_scale_inv or weight_scale beside F8_E4M3"));
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
  // 2^120 is finite; times 448 and 6 it is not.
  for (const float scale : {0x1p120f, std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(error_of(WeightFormat::kNvfp4,
                         [&](auto& t) {
                           const auto bits = std::bit_cast<std::array<std::byte, 4>>(scale);
                           std::copy(bits.begin(), bits.end(), t.back().bytes.begin());
                         }),
                HasSubstr("expected positive, finite scales with finite weights, found"));
  }
  EXPECT_THAT(error_of(WeightFormat::kInt4,
                       [](auto& t) {
                         t.push_back({"m.weight_zero_point", Dtype::kI8, {1}, {std::byte{0}}});
                       }),
              HasSubstr("'m.weight_zero_point': expected shape [1, 2], found [1]"));
}

}  // namespace
}  // namespace wideep::weights
