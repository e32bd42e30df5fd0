// SPDX-License-Identifier: Apache-2.0
//
// The layout, element by element from its description in packed_matrix.h, and the instruction sets
// against each other.
#include "kernels/interleave.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/aligned_bytes.h"
#include "kernels/kernels.h"

namespace wideep::kernels {
namespace {

// Every element's place in the packed form holds it; everything else is zero.
template <typename T>
void expect_layout(const PackedShape& shape, const T* rows, const std::byte* packed) {
  std::vector<T> expected(shape.bytes() / sizeof(T), T(0.0f));
  const size_t pair = shape.format == WeightFormat::kBf16 ? 2 : 1;
  for (size_t row = 0; row < static_cast<size_t>(shape.n); ++row) {
    const size_t panel = row / kPanelWidth * shape.panel_bytes() / sizeof(T);
    for (size_t k = 0; k < static_cast<size_t>(shape.k); ++k) {
      expected[panel + (k / pair * kPanelWidth + row % kPanelWidth) * pair + k % pair] =
          rows[row * shape.k + k];
    }
  }
  const T* found = reinterpret_cast<const T*>(packed);
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(static_cast<float>(found[i]), static_cast<float>(expected[i]))
        << shape.n << " × " << shape.k << ", element " << i;
  }
}

constexpr int kSizes[][2] = {{1, 1}, {16, 2}, {17, 31}, {48, 64}, {5, 100}, {33, 257}};

std::vector<float> random_floats(size_t count) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

TEST(Interleave, PlacesEveryElement) {
  for (const auto& [n, k] : kSizes) {
    const auto values = random_floats(static_cast<size_t>(n) * k);
    const std::vector<Bf16> halves(values.begin(), values.end());

    PackedShape shape = packed_shape(WeightFormat::kF32, n, k);
    base::AlignedBytes out(shape.bytes());
    interleave(shape, reinterpret_cast<const std::byte*>(values.data()), out.data());
    expect_layout(shape, values.data(), out.data());

    shape = packed_shape(WeightFormat::kBf16, n, k);
    out = base::AlignedBytes(shape.bytes());
    interleave(shape, reinterpret_cast<const std::byte*>(halves.data()), out.data());
    expect_layout(shape, halves.data(), out.data());

    out = base::AlignedBytes(shape.bytes());
    interleave_rounded(shape, values.data(), out.data());
    expect_layout(shape, halves.data(), out.data());
  }
}

// Tensors of a checkpoint may begin at any byte, and memory may hold anything before.
TEST(Interleave, ReadsFromAnyAddressAndWritesEveryByte) {
  const PackedShape shape = packed_shape(WeightFormat::kBf16, 20, 50);
  const auto values = random_floats(size_t{20} * 50);
  const std::vector<Bf16> halves(values.begin(), values.end());
  std::vector<std::byte> shifted(halves.size() * sizeof(Bf16) + 1);
  std::memcpy(shifted.data() + 1, halves.data(), shifted.size() - 1);
  base::AlignedBytes out(shape.bytes());
  std::memset(out.data(), 0xff, out.size());
  interleave(shape, shifted.data() + 1, out.data());
  expect_layout(shape, halves.data(), out.data());
}

TEST(Interleave, EveryInstructionSetMakesTheSameBytes) {
  for (const Kernels* kernels : all_kernels()) {
    if (!kernels->supported()) continue;
    for (const int num_words : {1, 7, 8, 15, 16, 17, 64, 100}) {
      const auto rows = random_floats(size_t{kPanelWidth} * num_words + 3);
      const auto* bytes = reinterpret_cast<const std::byte*>(rows.data()) + 1;
      const size_t row_bytes = static_cast<size_t>(num_words) * 4;
      base::AlignedBytes out(kPanelWidth * row_bytes), expected(kPanelWidth * row_bytes);
      kernels->interleave_rows(bytes, row_bytes, num_words, out.data(), bytes);
      all_kernels().back()->interleave_rows(bytes, row_bytes, num_words, expected.data(), nullptr);
      EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size()), 0)
          << kernels->isa << ", " << num_words << " words";
    }
  }
}

}  // namespace
}  // namespace wideep::kernels
