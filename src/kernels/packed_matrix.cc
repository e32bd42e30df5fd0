// SPDX-License-Identifier: Apache-2.0
#include "kernels/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/interleave.h"

namespace wideep::kernels {
namespace {

// Calls visit(panel, lane, row) for each of the n rows.
template <typename Visit>
void for_each_row(const PackedShape& shape, std::byte* out, Visit visit) {
  for (int row = 0; row < shape.n; ++row) {
    visit(out + static_cast<size_t>(row / kPanelWidth) * shape.panel_bytes(), row % kPanelWidth,
          row);
  }
}

// Symmetric: scale = max |x| / 127, code = round(x / scale).
void pack_int8_row(const PackedShape& shape, const float* x, int lane, std::byte* panel) {
  for (int block = 0; block < shape.num_blocks(); ++block) {
    const int k0 = block * shape.group, count = std::min(shape.group, shape.k - k0);
    float largest = 0.0f;
    for (int i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[k0 + i]));
    const float scale = largest / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    std::byte* at = panel + static_cast<size_t>(block) * shape.block_bytes();
    reinterpret_cast<float*>(at + shape.block_bytes() - kScaleBytes)[lane] = scale;
    auto* codes = reinterpret_cast<uint8_t*>(at) + lane * 4;
    for (int i = 0; i < shape.group; ++i) {
      const float code = i < count ? std::nearbyint(x[k0 + i] * inverse) : 0.0f;
      codes[static_cast<size_t>(i / 4) * (4 * kPanelWidth) + i % 4] =
          static_cast<uint8_t>(static_cast<int>(code) + 128);
    }
  }
}

// Columns beyond n as rows of zeros would be.
void pack_int8_padding(const PackedShape& shape, std::byte* out) {
  const std::vector<float> zeros(static_cast<size_t>(shape.k), 0.0f);
  std::byte* panel = out + static_cast<size_t>(shape.num_panels() - 1) * shape.panel_bytes();
  for (int row = shape.n; row < shape.num_panels() * kPanelWidth; ++row) {
    pack_int8_row(shape, zeros.data(), row % kPanelWidth, panel);
  }
}

}  // namespace

int default_group(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kBf16:
      return 0;
    case WeightFormat::kFp8:
    case WeightFormat::kInt8:
      return 128;
    case WeightFormat::kInt4:
      return 64;
    case WeightFormat::kMxfp4:
      return 32;
    case WeightFormat::kNvfp4:
      return 16;
  }
  return 0;
}

int PackedShape::block_k() const {
  switch (format) {
    case WeightFormat::kF32:
      return k;
    case WeightFormat::kBf16:
      return (k + 1) / 2 * 2;
    case WeightFormat::kFp8:
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
      return group;
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
      return 4 * group;
  }
  return 0;
}

size_t PackedShape::block_bytes() const {
  const size_t values = static_cast<size_t>(block_k()) * kPanelWidth;
  switch (format) {
    case WeightFormat::kF32:
      return values * sizeof(float);
    case WeightFormat::kBf16:
      return values * sizeof(Bf16);
    case WeightFormat::kFp8:
    case WeightFormat::kInt8:
      return kScaleBytes + values;
    case WeightFormat::kInt4:
      return kScaleBytes + values / 2;
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
      return 4 * kPanelWidth + values / 2;
  }
  return 0;
}

PackedMatrix pack_matrix(const PackedShape& shape, const float* rows, std::byte* out) {
  const auto k = static_cast<size_t>(shape.k);
  switch (shape.format) {
    case WeightFormat::kF32:
      interleave(shape, reinterpret_cast<const std::byte*>(rows), out);
      break;
    case WeightFormat::kBf16:
      interleave_rounded(shape, rows, out);
      break;
    case WeightFormat::kInt8:
      for_each_row(shape, out, [&](std::byte* panel, int lane, int row) {
        pack_int8_row(shape, rows + row * k, lane, panel);
      });
      pack_int8_padding(shape, out);
      break;
    default:
      WIDEEP_CHECK(false);
  }
  return {shape, out};
}

PackedMatrix pack_bf16_rows(const PackedShape& shape, const Bf16* rows, std::byte* out) {
  WIDEEP_CHECK(shape.format == WeightFormat::kBf16);
  interleave(shape, reinterpret_cast<const std::byte*>(rows), out);
  return {shape, out};
}

}  // namespace wideep::kernels
