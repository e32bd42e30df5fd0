// SPDX-License-Identifier: Apache-2.0
//
// Every code of 8 and 16 bits, and those of 32 at the edges of each exponent, are put at random
// places and judged as std::isfinite judges their values; the check of a part must find what lies
// in the part alone. Then a matrix with one bad value in its last row is loaded in every weight
// format: packing must not skip a piece, and the error names the value's own row and column. A
// failure means noise instead of text, with no hint that the file is damaged.
#include "weights/finite.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/scratch_directory.h"
#include "weights/checkpoint.h"
#include "weights/quantized_tensors.h"
#include "weights/weight_loader.h"

namespace wideep::weights {
namespace {

using kernels::WeightFormat;
using tensor_files::TensorEntry;
using testing::HasSubstr;

// Each code, alone in a tensor of zeros and wherever it lies, is judged as its value is.
template <typename Bits>
void expect_judged_by_value(Dtype dtype, const std::vector<Bits>& codes,
                            const std::function<bool(Bits)>& is_finite) {
  constexpr int64_t kCount = 10'000, kColumns = 10;
  std::vector<Bits> values(kCount, 0);
  const TensorEntry entry{dtype, {kCount / kColumns, kColumns}, std::as_bytes(std::span(values))};
  std::mt19937 rng(1);
  for (size_t i = 0; i < codes.size(); ++i) {
    const int64_t count = i % 37 == 0 ? kCount : 100;  // of the tensor, to be fast
    const int64_t at = rng() % static_cast<uint64_t>(count);
    values[static_cast<size_t>(at)] = codes[i];
    const Status status = check_finite(entry, 0, count, "file: tensor 't'");
    ASSERT_EQ(status.ok(), is_finite(codes[i])) << "code " << uint32_t{codes[i]};
    if (!status.ok()) {
      EXPECT_THAT(status.message(),
                  HasSubstr(fmt::format("in row {}, column {};", at / kColumns, at % kColumns)));
      EXPECT_TRUE(check_finite(entry, 0, at, "t").ok());
      EXPECT_TRUE(check_finite(entry, at + 1, count - at - 1, "t").ok());
    }
    values[static_cast<size_t>(at)] = 0;
  }
}

template <typename Bits>
std::vector<Bits> all_codes() {
  std::vector<Bits> codes(size_t{1} << (8 * sizeof(Bits)));
  std::iota(codes.begin(), codes.end(), Bits{0});
  return codes;
}

// Of both signs and every exponent the smallest and the largest, and those with one bit of the
// mantissa: ±0 and ±inf, the largest finite ones, and NaNs with each bit of the payload alone.
std::vector<uint32_t> edges_of_f32() {
  constexpr int kMantissaBits = 23;
  constexpr uint32_t kMantissa = (1u << kMantissaBits) - 1;
  std::vector<uint32_t> codes;
  for (uint32_t sign_and_exponent = 0; sign_and_exponent < 512; ++sign_and_exponent) {
    const uint32_t first = sign_and_exponent << kMantissaBits;
    codes.push_back(first);
    codes.push_back(first | kMantissa);
    for (int bit = 0; bit < kMantissaBits; ++bit) codes.push_back(first | 1u << bit);
  }
  return codes;
}

TEST(Finite, EveryCodeIsJudgedByItsValue) {
  expect_judged_by_value<uint32_t>(Dtype::kF32, edges_of_f32(), [](uint32_t bits) {
    return std::isfinite(std::bit_cast<float>(bits));
  });
  expect_judged_by_value<uint16_t>(Dtype::kBf16, all_codes<uint16_t>(), [](uint16_t bits) {
    return std::isfinite(std::bit_cast<float>(uint32_t{bits} << 16));
  });
  expect_judged_by_value<uint16_t>(Dtype::kF16, all_codes<uint16_t>(), [](uint16_t bits) {
    return std::isfinite(float_from_f16(bits));
  });
  expect_judged_by_value<uint8_t>(Dtype::kF8E4M3, all_codes<uint8_t>(),
                                  [](uint8_t bits) { return bits != 0x7f && bits != 0xff; });
}

TEST(Finite, TheMessageNamesTensorValueAndPlace) {
  std::vector<float> values(12, 1.0f);
  const TensorEntry entry{Dtype::kF32, {3, 4}, std::as_bytes(std::span(values))};
  values[6] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(check_finite(entry, "file: tensor 't'").message(),
            "file: tensor 't': expected finite weights, found -inf in row 1, column 2; the file is "
            "damaged, or the model diverged in training: take another copy");
  values[6] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(check_finite(entry, "t").message(), HasSubstr("found NaN in row 1, column 2"));
}

// A checkpoint of one matrix "m.weight" [40, 256] in every kind of float, and as fp8 codes, with
// one value that is not finite in its last row.
class DamagedMatrix : public testing::TestWithParam<Dtype> {
 protected:
  static constexpr int kRows = 40, kColumns = 256;

  void SetUp() override {
    std::vector<NamedTensor> tensors;
    if (GetParam() == Dtype::kF8E4M3) {
      const std::vector<float> rows(kRows * kColumns, 1.0f);
      tensors = quantized_tensors(
          "m", kernels::quantize_matrix(WeightFormat::kFp8, 128, rows.data(), kRows, kColumns));
    } else {
      tensors.push_back({"m.weight",
                         GetParam(),
                         {kRows, kColumns},
                         std::vector<std::byte>(kRows * kColumns * dtype_bytes(GetParam()))});
    }
    NamedTensor& weight = tensors.front();
    ASSERT_EQ(weight.name, "m.weight");
    const size_t at = (kRows - 1) * kColumns + 3, bytes = dtype_bytes(GetParam());
    for (size_t i = 0; i < bytes; ++i) weight.bytes[at * bytes + i] = std::byte{0x7f};
    if (GetParam() == Dtype::kBf16) weight.bytes[at * bytes] = std::byte{0xc0};
    if (GetParam() == Dtype::kF32) weight.bytes[at * bytes + 2] = std::byte{0x80};
    std::vector<tensor_files::TensorToWrite> list;
    for (const NamedTensor& tensor : tensors) list.push_back(tensor.to_write());
    ASSERT_TRUE(tensor_files::write_safetensors(scratch_.file("model.safetensors"), list).ok());
    auto opened = Checkpoint::open(scratch_.path());
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    checkpoint_.emplace(std::move(*opened));
  }

  void expect_named(const Status& status) {
    EXPECT_EQ(status.exit_code(), 2);
    EXPECT_THAT(status.message(), HasSubstr("model.safetensors: tensor 'm.weight': expected finite "
                                            "weights, found "));
    EXPECT_THAT(status.message(), HasSubstr("in row 39, column 3;"));
  }

  base::ScratchDirectory scratch_;
  std::optional<Checkpoint> checkpoint_;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, DamagedMatrix,
                         testing::Values(Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF8E4M3),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

TEST_P(DamagedMatrix, IsRefusedInEveryFormat) {
  for (const auto format :
       {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kInt8,
        WeightFormat::kInt4, WeightFormat::kMxfp4, WeightFormat::kNvfp4}) {
    SCOPED_TRACE(kernels::weight_format_name(format));
    const WeightLoader loader(*checkpoint_, format);
    const auto matrix = loader.matrix("m.weight", kRows, kColumns);
    ASSERT_TRUE(matrix.ok()) << matrix.status().message();
    expect_named(loader.run());
  }
}

TEST_P(DamagedMatrix, IsRefusedAsFloatsAndAsRows) {
  const WeightLoader loader(*checkpoint_, std::nullopt);
  expect_named(loader.floats("m.weight", {kRows, kColumns}).status());
  if (GetParam() == Dtype::kF8E4M3) return;  // rows are never codes
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    std::vector<std::byte> out(kRows * kColumns * dtype_bytes(dtype));
    ASSERT_TRUE(loader.rows("m.weight", kRows, kColumns, dtype, out.data()).ok());
    expect_named(loader.run());
  }
}

TEST(Finite, VectorsAreChecked) {
  const base::ScratchDirectory scratch;
  std::vector<float> values(5, 1.0f);
  values[4] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(tensor_files::write_safetensors(
                  scratch.file("model.safetensors"),
                  {{"norm.weight", Dtype::kF32, {5}, std::as_bytes(std::span(values))}})
                  .ok());
  const auto checkpoint = Checkpoint::open(scratch.path());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_THAT(WeightLoader(*checkpoint, std::nullopt).floats("norm.weight", {5}).status().message(),
              HasSubstr("tensor 'norm.weight': expected finite weights, found NaN"));
}

}  // namespace
}  // namespace wideep::weights
