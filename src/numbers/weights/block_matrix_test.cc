// SPDX-License-Identifier: Apache-2.0
//
// The codes of GGUF tensors in the kernels' formats have the values that the tensors decode to: the
// committed blocks of every type (tests/golden/make_gguf_blocks.py), in any order of rows and
// columns.
#include "weights/block_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "kernels/coded_matrix.h"
#include "weights/blocks.h"

namespace wideep::weights {
namespace {

using kernels::WeightFormat;
using tensor_files::BlockType;
using tensor_files::GgufFile;
using tensor_files::GgufTensor;

constexpr int kRows = 3, kColumns = 256;

MatrixForm form_of(BlockType type) { return BlockMatrix::form_of({&type, 1}); }

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
      const MatrixForm form = form_of(tensor.type);
      if (!kernels::is_coded(form.format)) continue;
      SCOPED_TRACE(name);
      visit(tensor, form);
      ++count;
    }
    EXPECT_EQ(count, 13);  // all but F32, F16 and BF16
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
  for_each_coded([](const GgufTensor& tensor, const MatrixForm& form) {
    const BlockMatrix matrix({.parts = {&tensor}}, kRows, kColumns);
    std::vector<float> expected(kRows * kColumns);
    matrix.to_float32(0, kRows, expected.data());
    expect_close(decoded(matrix.rows(0, kRows, form)), expected);
    // A part, as threads ask for them.
    const std::vector<float> last(expected.end() - kColumns, expected.end());
    expect_close(decoded(matrix.rows(kRows - 1, kRows, form)), last);
  });
}

// Forms that types share with others. Differences are those of float32 sums: a value that is the
// difference of a code and its minimum has an ulp of these.
TEST_F(EveryType, EveryFormThatHoldsItHasTheDecodedValues) {
  int count = 0;
  for_each_coded([&](const GgufTensor& tensor, const MatrixForm&) {
    const BlockMatrix matrix({.parts = {&tensor}}, kRows, kColumns);
    std::vector<float> expected(kRows * kColumns);
    matrix.to_float32(0, kRows, expected.data());
    for (const WeightFormat format :
         {WeightFormat::kInt4, WeightFormat::kInt8, WeightFormat::kMxfp4, WeightFormat::kInt4m,
          WeightFormat::kInt8m, WeightFormat::kInt4h, WeightFormat::kInt8h}) {
      for (const int group : {8, 16, 32}) {
        const MatrixForm form = {format, group};
        if (!matrix.holds(form)) continue;
        ++count;
        const CodedSource::Rows rows = matrix.rows(0, kRows, form);
        const std::vector<float> values = decoded(rows);
        for (int i = 0; i < kRows * kColumns; ++i) {
          const int row = i / kColumns, of_group = i % kColumns / group;
          const float minimum = std::abs(rows.view.group_minimum(row, of_group));
          const auto at = static_cast<size_t>(i);
          const float ulp = 2 * (std::abs(expected[at]) + minimum) * 0x1p-24f + 6 * 0x1p-127f;
          ASSERT_NEAR(values[at], expected[at], ulp)
              << kernels::weight_format_name(format) << " in groups of " << group << " at " << i;
        }
      }
    }
  });
  EXPECT_GT(count, 50);
}

TEST_F(EveryType, RowsAndColumnsInAnotherOrder) {
  for_each_coded([](const GgufTensor& tensor, const MatrixForm& form) {
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
    // Heads of 64 are whole groups of all types, but not whole blocks of 256 with minimums.
    if (kernels::has_two_levels(form.format)) {
      EXPECT_FALSE(ordered.holds(form));
      EXPECT_EQ(BlockMatrix::form_of({&tensor.type, 1}, 64),
                (MatrixForm{WeightFormat::kInt8, form.group}));
      return;
    }
    ASSERT_TRUE(ordered.holds(form));
    EXPECT_EQ(BlockMatrix::form_of({&tensor.type, 1}, 64), form);
    expect_close(decoded(ordered.rows(0, 4, form)), values);
  });
}

TEST_F(EveryType, RowsOfSeveralTypesHaveAFormOfBoth) {
  const GgufTensor& a = file_->tensors().at("Q4_K");
  const GgufTensor& b = file_->tensors().at("Q6_K");
  const BlockMatrix matrix({.parts = {&a, &b}, .map = {{0, 0}, {1, 1}}}, 2, kColumns);
  EXPECT_FALSE(matrix.holds({WeightFormat::kInt4m, 32}));
  EXPECT_FALSE(matrix.holds({WeightFormat::kInt8, 16}));
  const std::vector<float> values = decoded(matrix.rows(0, 2, {WeightFormat::kInt8m, 16}));
  std::vector<float> expected(2 * kColumns);
  matrix.to_float32(0, 2, expected.data());
  for (size_t i = 0; i < values.size(); ++i) {
    const float largest =
        *std::ranges::max_element(expected, {}, [](float x) { return std::abs(x); });
    ASSERT_NEAR(values[i], expected[i], std::abs(largest) * 0x1p-22f) << i;
  }
  const GgufTensor& c = file_->tensors().at("F16");
  EXPECT_FALSE(BlockMatrix({.parts = {&a, &c}, .map = {{0, 0}, {1, 1}}}, 2, kColumns)
                   .holds({WeightFormat::kInt8m, 16}));
}

TEST(BlockMatrix, TypesThatMustHaveOneFormGetTheSmallestThatHoldsThem) {
  using enum BlockType;
  const auto form = [](std::initializer_list<BlockType> types) {
    return BlockMatrix::form_of({types.begin(), types.size()});
  };
  const auto is = [](WeightFormat format, int group) { return MatrixForm{format, group}; };
  EXPECT_EQ(form({kQ4K, kQ5K}), is(WeightFormat::kInt8m, 32));
  EXPECT_EQ(form({kQ4K, kQ6K}), is(WeightFormat::kInt8m, 16));
  EXPECT_EQ(form({kQ2K, kQ3K, kQ4K}), is(WeightFormat::kInt4m, 16));
  EXPECT_EQ(form({kIq4Xs, kQ5K}), is(WeightFormat::kInt8m, 32));
  EXPECT_EQ(form({kQ4_0, kQ4_1}), is(WeightFormat::kInt4h, 32));
  EXPECT_EQ(form({kQ4_1, kQ5_1}), is(WeightFormat::kInt8h, 32));
  EXPECT_EQ(form({kQ4_0, kQ8_0}), is(WeightFormat::kInt8, 32));
  EXPECT_EQ(form({kQ6K, kQ8_0}), is(WeightFormat::kInt8, 16));
  // No form holds both.
  EXPECT_EQ(form({kQ4K, kQ8_0}), is(WeightFormat::kInt8, 32));
  EXPECT_EQ(form({kMxfp4, kQ8_0}), is(WeightFormat::kInt8, 32));
  EXPECT_EQ(form({kQ2K, kQ8_0}), is(WeightFormat::kInt8, 16));
  EXPECT_EQ(form({kQ4K, kF16}).format, WeightFormat::kBf16);
}

}  // namespace
}  // namespace wideep::weights
