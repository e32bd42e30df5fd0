// SPDX-License-Identifier: Apache-2.0
//
// The codes of GGUF tensors in the kernels' formats have the values that the tensors decode to: the
// committed blocks of every type (tests/golden/make_gguf_blocks.py), in any order of rows and
// columns.
#include "weights/block_matrix.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <vector>

#include "kernels/coded_matrix.h"
#include "weights/blocks.h"

namespace wideep::weights {
namespace {

using formats::BlockType;
using formats::GgufFile;
using formats::GgufTensor;
using kernels::WeightFormat;

constexpr int kRows = 3, kColumns = 256;

class EveryType : public testing::Test {
 protected:
  void SetUp() override {
    auto file = GgufFile::open(WIDEEP_SOURCE_DIR "/tests/golden/gguf/blocks.gguf");
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_.emplace(std::move(*file));
  }
  template <typename Visit>
  void for_each_coded(Visit visit) const {
    int count = 0;
    for (const auto& [name, tensor] : file_->tensors()) {
      if (!kernels::is_coded(BlockMatrix::form_of(tensor.type).format)) continue;
      SCOPED_TRACE(name);
      visit(tensor);
      ++count;
    }
    EXPECT_EQ(count, 9);
  }

  std::optional<GgufFile> file_;
};

// Differences are those of rounding a product that ggml rounds and the exact value of the codes,
// and of MXFP4's smallest scale, 2^-127, which the product takes for 0.
void expect_close(const std::vector<float>& values, const std::vector<float>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], std::abs(expected[i]) * 0x1p-23f + 6 * 0x1p-127f) << i;
  }
}

std::vector<float> decoded(const CodedSource::Rows& rows) {
  std::vector<float> values(static_cast<size_t>(rows.view.n) * static_cast<size_t>(rows.view.k));
  kernels::dequantize_rows(rows.view, 0, rows.view.n, values.data());
  return values;
}

TEST_F(EveryType, CodesHaveTheDecodedValues) {
  for_each_coded([](const GgufTensor& tensor) {
    const BlockMatrix matrix({.parts = {&tensor}}, kRows, kColumns);
    std::vector<float> expected(kRows * kColumns);
    matrix.to_float32(0, kRows, expected.data());
    expect_close(decoded(matrix.rows(0, kRows)), expected);
    // A part, as threads ask for them.
    const std::vector<float> last(expected.end() - kColumns, expected.end());
    expect_close(decoded(matrix.rows(kRows - 1, kRows)), last);
  });
}

TEST_F(EveryType, RowsAndColumnsInAnotherOrder) {
  for_each_coded([](const GgufTensor& tensor) {
    BlockRows rows{.parts = {&tensor, &tensor}, .map = {{1, 2}, {0, 0}, {1, 1}, {0, 2}}};
    rows.column_step = 64;
    rows.columns = {2, 0, 3, 1};
    const BlockMatrix plain({.parts = {&tensor}}, kRows, kColumns);
    const BlockMatrix ordered(rows, 4, kColumns);
    std::vector<float> stored(kRows * kColumns), values(4 * kColumns);
    plain.to_float32(0, kRows, stored.data());
    ordered.to_float32(0, 4, values.data());
    for (int row = 0; row < 4; ++row) {
      for (int column = 0; column < kColumns; ++column) {
        const int from = rows.columns[static_cast<size_t>(column / 64)] * 64 + column % 64;
        ASSERT_EQ(std::bit_cast<uint32_t>(values[static_cast<size_t>(row * kColumns + column)]),
                  std::bit_cast<uint32_t>(stored[static_cast<size_t>(
                      rows.map[static_cast<size_t>(row)].index * kColumns + from)]));
      }
    }
    // Heads of 64 are whole groups of all types, but not whole blocks of Q4_K.
    if (tensor.type == BlockType::kQ4K) {
      EXPECT_FALSE(kernels::is_coded(ordered.form().format));
      return;
    }
    ASSERT_TRUE(kernels::is_coded(ordered.form().format));
    expect_close(decoded(ordered.rows(0, 4)), values);
  });
}

TEST_F(EveryType, TypesThatDifferAreFloats) {
  const GgufTensor& a = file_->tensors().at("Q8_0");
  const GgufTensor& b = file_->tensors().at("Q4_0");
  const BlockMatrix matrix({.parts = {&a, &b}, .map = {{0, 0}, {1, 1}}}, 2, kColumns);
  EXPECT_FALSE(kernels::is_coded(matrix.form().format));
  std::vector<float> values(2 * kColumns), expected(kColumns);
  matrix.to_float32(0, 2, values.data());
  dequantize_blocks(b.type, b.bytes.data() + b.row_bytes(), kColumns, expected.data());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), values.begin() + kColumns));
}

TEST(BlockMatrix, NearestFormsHaveAtLeastAsManyBits) {
  for (const BlockType type : {BlockType::kQ4_1, BlockType::kQ5_1, BlockType::kQ5K}) {
    EXPECT_EQ(BlockMatrix::packed_form(type), (MatrixForm{WeightFormat::kInt8, 32}));
    EXPECT_FALSE(kernels::is_coded(BlockMatrix::form_of(type).format));
  }
  EXPECT_EQ(BlockMatrix::packed_form(BlockType::kQ2K), (MatrixForm{WeightFormat::kInt4, 16}));
  EXPECT_EQ(BlockMatrix::packed_form(BlockType::kQ4K), (MatrixForm{WeightFormat::kInt4m, 32}));
}

}  // namespace
}  // namespace wideep::weights
