// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/coded_matrix.h"
#include "kernels/e5m3.h"

namespace wideep::kernels {
namespace {

// Reorders the nibbles of eight values k … k + 7 (low nibble first) into four bytes: byte i has
// value k + i in its low and k + 4 + i in its high nibble. So a mask and a shift expand a line of
// codes into two lines of int8 operands.
uint32_t nibbles_to_halves(uint32_t nibbles) {
  const auto to_bytes = [](uint32_t four) {
    four = (four | four << 8) & 0x00ff00ffu;
    return (four | four << 4) & 0x0f0f0f0fu;
  };
  return to_bytes(nibbles & 0xffffu) | to_bytes(nibbles >> 16) << 4;
}

// The byte whose code, or two codes, mean zero.
uint8_t zero_byte(WeightFormat format) {
  if (format == WeightFormat::kInt8) return 128;
  return format == WeightFormat::kInt4 ? 0x88 : 0;
}

// The codes of one row in one block, padded with zero codes to block_k.
struct BlockCodes {
  static constexpr int kMaxBytes = 1024;
  uint8_t bytes[kMaxBytes];

  BlockCodes(const CodedMatrix& matrix, const PackedShape& shape, int row, int k0) {
    const int per_byte = is_four_bit(shape.format) ? 2 : 1;
    const int whole = shape.block_k() / per_byte;
    const int count = (std::min(shape.block_k(), shape.k - k0) + per_byte - 1) / per_byte;
    WIDEEP_CHECK(whole <= kMaxBytes);
    std::memset(bytes, zero_byte(shape.format), static_cast<size_t>(whole));
    const std::byte* from = matrix.codes + static_cast<size_t>(row) * matrix.row_bytes();
    std::memcpy(bytes, from + k0 / per_byte, static_cast<size_t>(count));
    if (per_byte == 2 && shape.k % 2 != 0 && k0 + shape.block_k() >= shape.k) {
      uint8_t& last = bytes[count - 1];  // k is odd: its upper nibble has no value
      last = static_cast<uint8_t>((last & 0x0f) | (zero_byte(shape.format) & 0xf0));
    }
  }
};

// Writes the units of one column (lane), which are kPanelWidth units apart in a panel.
template <typename Unit, typename Change>
void spread(const uint8_t* bytes, int num_units, int lane, std::byte* out, Change change) {
  for (int i = 0; i < num_units; ++i) {
    Unit unit;
    std::memcpy(&unit, bytes + static_cast<size_t>(i) * sizeof(Unit), sizeof(Unit));
    unit = change(unit);
    std::memcpy(out + (static_cast<size_t>(i) * kPanelWidth + size_t(lane)) * sizeof(Unit), &unit,
                sizeof(Unit));
  }
}

void place_codes(const PackedShape& shape, const uint8_t* bytes, int lane, std::byte* out) {
  const auto same = [](auto unit) { return unit; };
  switch (shape.format) {
    case WeightFormat::kFp8:
      return spread<uint16_t>(bytes, shape.block_k() / 2, lane, out, same);
    case WeightFormat::kInt8:
    case WeightFormat::kInt8m:
    case WeightFormat::kInt8h:
      return spread<uint32_t>(bytes, shape.block_k() / 4, lane, out, same);
    case WeightFormat::kInt4:
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
    case WeightFormat::kInt4m:
    case WeightFormat::kInt4h:
      return spread<uint32_t>(bytes, shape.block_k() / 8, lane, out, nibbles_to_halves);
    case WeightFormat::kF32:
    case WeightFormat::kBf16:
      break;
  }
  WIDEEP_CHECK(is_coded(shape.format));
}

// For formats with one scale per block, after the codes: a float32, or half floats of which all
// columns' scales are before all columns' minimums.
void pack_block(const PackedShape& shape, const CodedMatrix& matrix, int row, int k0, int lane,
                std::byte* block) {
  const BlockCodes codes(matrix, shape, row, k0);
  std::byte* scales = block + shape.block_bytes() - kScaleBytes;
  const int group = k0 / matrix.group;
  if (has_half_scales(shape.format)) {
    const auto* halves =
        static_cast<const uint16_t*>(matrix.scales) + 2 * matrix.scale_index(row, group);
    reinterpret_cast<uint16_t*>(scales)[lane] = halves[0];
    reinterpret_cast<uint16_t*>(scales)[kPanelWidth + lane] = halves[1];
  } else {
    reinterpret_cast<float*>(scales)[lane] = matrix.group_scale(row, group);
  }
  place_codes(shape, codes.bytes, lane, block);
}

// Converts a checkpoint's byte scale: nvfp4 to e5m3; mxfp4 to half the scale, one exponent less,
// since products use twice the element. 0: too small, so its group becomes zero.
std::byte packed_scale(WeightFormat format, std::byte scale) {
  const auto code = static_cast<uint8_t>(scale);
  if (format == WeightFormat::kNvfp4) return std::byte{e5m3_from_e4m3(code)};
  return std::byte{code > 0 ? static_cast<uint8_t>(code - 1) : uint8_t{0}};
}

// For formats with byte scales, one per group, before the codes.
void pack_block_of_groups(const PackedShape& shape, const CodedMatrix& matrix, int row, int k0,
                          int lane, std::byte* block) {
  BlockCodes codes(matrix, shape, row, k0);
  for (int i = 0; i < kGroupsOfBlock && k0 + i * shape.group < shape.k; ++i) {
    const int group = k0 / shape.group + i;
    const std::byte scale = packed_scale(
        shape.format, static_cast<const std::byte*>(matrix.scales)[matrix.scale_index(row, group)]);
    block[static_cast<size_t>(i) * kPanelWidth + size_t(lane)] = scale;
    const int bytes = shape.group / 2;
    if (scale == std::byte{0}) std::memset(codes.bytes + i * bytes, 0, static_cast<size_t>(bytes));
  }
  place_codes(shape, codes.bytes, lane, block + kGroupsOfBlock * kPanelWidth);
}

// For formats of two levels: scales and minimums of groups before the codes, dmin and d behind.
// Groups of the matrix may be divided.
void pack_two_levels(const PackedShape& shape, const CodedMatrix& matrix, int row, int k0, int lane,
                     std::byte* block) {
  const BlockCodes codes(matrix, shape, row, k0);
  const size_t all_scales = static_cast<size_t>(shape.groups_of_block()) * kPanelWidth;
  for (int k = k0; k < std::min(k0 + kTwoLevelBlock, shape.k); k += shape.group) {
    const size_t from = matrix.scale_index(row, k / matrix.group);
    const size_t to = static_cast<size_t>((k - k0) / shape.group) * kPanelWidth + size_t(lane);
    block[to] = static_cast<const std::byte*>(matrix.scales)[from];
    block[all_scales + to] = matrix.minimums[from];
  }
  place_codes(shape, codes.bytes, lane, block + 2 * all_scales);
  const float* scales = matrix.block_scale(row, k0 / matrix.group);
  auto* ends = reinterpret_cast<float*>(block + shape.block_bytes() - 2 * kScaleBytes);
  ends[lane] = scales[1];
  ends[kPanelWidth + lane] = scales[0];
}

}  // namespace

void begin_pack(const PackedShape& shape, int first_panel, int last_panel, std::byte* out) {
  const size_t bytes = shape.block_bytes();
  const bool scales_behind = is_coded(shape.format) && !has_byte_scales(shape.format);
  std::byte* const end = out + static_cast<size_t>(last_panel) * shape.panel_bytes();
  std::byte* block = out + static_cast<size_t>(first_panel) * shape.panel_bytes();
  for (; block < end; block += bytes) {
    std::memset(block, zero_byte(shape.format), bytes);
    if (scales_behind) std::memset(block + bytes - kScaleBytes, 0, kScaleBytes);
  }
}

void pack_codes(const PackedShape& shape, const CodedMatrix& matrix, int first_row,
                std::byte* out) {
  WIDEEP_CHECK(shape.format == matrix.format);
  WIDEEP_CHECK_EQ(shape.k, matrix.k);
  WIDEEP_CHECK_EQ(matrix.group % shape.group == 0 || matrix.group >= matrix.k, true);
  const auto pack = has_two_levels(shape.format)    ? pack_two_levels
                    : has_byte_scales(shape.format) ? pack_block_of_groups
                                                    : pack_block;
  for (int row = 0; row < matrix.n; ++row) {
    const int target = first_row + row;
    std::byte* panel = out + static_cast<size_t>(target / kPanelWidth) * shape.panel_bytes();
    for (int i = 0; i < shape.num_blocks(); ++i) {
      pack(shape, matrix, row, i * shape.block_k(), target % kPanelWidth,
           panel + static_cast<size_t>(i) * shape.block_bytes());
    }
  }
}

}  // namespace wideep::kernels
