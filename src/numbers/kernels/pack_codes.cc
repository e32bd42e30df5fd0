// SPDX-License-Identifier: Apache-2.0
//
// A row of the matrix becomes a column (lane) of a panel: its codes are cut into units of two or
// four bytes, and consecutive units of one row are written kPanelWidth units apart, so that one
// line of the panel holds the same k of all its rows.
//
// Three ways to pack a block, because scales lie in three places: behind the codes (one scale a
// block), before them (a byte for each group), or both (two levels). Codes that fill a block are
// spread straight from where they are stored. A last block that is not full goes through a padded
// copy; so do all blocks with byte scales, since the codes of a group are cleared where its scale
// becomes 0. Blocks are filled with codes of zero in begin_pack(), so rows that a panel lacks need
// no branch in the kernels.
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

// A matrix and its packed shape, with what both compute for every block.
struct Blocks {
  const CodedMatrix& matrix;
  PackedShape shape;
  int block_k;
  int codes_per_byte;
  size_t block_bytes;
  size_t row_bytes;
  size_t num_groups;

  Blocks(const CodedMatrix& from, const PackedShape& to)
      : matrix(from),
        shape(to),
        block_k(to.block_k()),
        codes_per_byte(is_four_bit(to.format) ? 2 : 1),
        block_bytes(to.block_bytes()),
        row_bytes(from.row_bytes()),
        num_groups(static_cast<size_t>(from.num_groups())) {}
};

// A row of the matrix, and the column of its panel (lane) that it becomes.
struct Row {
  const uint8_t* codes;
  size_t first_scale;  // index of the scale of its first group
  const float* block_scales;
  int lane;

  Row(const Blocks& blocks, int row, int to)
      : codes(reinterpret_cast<const uint8_t*>(blocks.matrix.codes) +
              static_cast<size_t>(row) * blocks.row_bytes),
        first_scale(static_cast<size_t>(row / blocks.matrix.scale_rows) * blocks.num_groups),
        block_scales(has_two_levels(blocks.shape.format) ? blocks.matrix.block_scale(row, 0)
                                                         : nullptr),
        lane(to) {}
};

// The codes of one row in one block, padded with zero codes to block_k.
struct BlockCodes {
  static constexpr int kMaxBytes = 1024;
  uint8_t bytes[kMaxBytes];

  BlockCodes(const Blocks& blocks, const Row& row, int k0) {
    const int per_byte = blocks.codes_per_byte, k = blocks.shape.k;
    const int whole = blocks.block_k / per_byte;
    const int count = (std::min(blocks.block_k, k - k0) + per_byte - 1) / per_byte;
    const uint8_t zero = zero_byte(blocks.shape.format);
    WIDEEP_CHECK(whole <= kMaxBytes);
    std::memcpy(bytes, row.codes + k0 / per_byte, static_cast<size_t>(count));
    std::memset(bytes + count, zero, static_cast<size_t>(whole - count));
    if (per_byte == 2 && k % 2 != 0 && k0 + blocks.block_k >= k) {
      uint8_t& last = bytes[count - 1];  // k is odd: its upper nibble has no value
      last = static_cast<uint8_t>((last & 0x0f) | (zero & 0xf0));
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

void place_codes(const Blocks& blocks, const uint8_t* bytes, int lane, std::byte* out) {
  const auto same = [](auto unit) { return unit; };
  switch (blocks.shape.format) {
    case WeightFormat::kFp8:
      return spread<uint16_t>(bytes, blocks.block_k / 2, lane, out, same);
    case WeightFormat::kInt8:
    case WeightFormat::kInt8m:
    case WeightFormat::kInt8h:
      return spread<uint32_t>(bytes, blocks.block_k / 4, lane, out, same);
    case WeightFormat::kInt4:
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
    case WeightFormat::kInt4m:
    case WeightFormat::kInt4h:
      return spread<uint32_t>(bytes, blocks.block_k / 8, lane, out, nibbles_to_halves);
    case WeightFormat::kF32:
    case WeightFormat::kBf16:
      break;
  }
  WIDEEP_CHECK(is_coded(blocks.shape.format));
}

// Codes that fill the block are placed as they are stored.
void place_stored_codes(const Blocks& blocks, const Row& row, int k0, std::byte* out) {
  if (k0 + blocks.block_k <= blocks.shape.k) {
    return place_codes(blocks, row.codes + k0 / blocks.codes_per_byte, row.lane, out);
  }
  place_codes(blocks, BlockCodes(blocks, row, k0).bytes, row.lane, out);
}

// For formats with one scale per block, after the codes: a float32, or half floats of which all
// columns' scales are before all columns' minimums. Scales of a checkpoint need not be aligned.
void pack_block(const Blocks& blocks, const Row& row, int k0, std::byte* block) {
  std::byte* scales = block + blocks.block_bytes - kScaleBytes;
  const size_t at = row.first_scale + static_cast<size_t>(k0 / blocks.matrix.group);
  const std::byte* scale = static_cast<const std::byte*>(blocks.matrix.scales) + at * sizeof(float);
  const auto lane = static_cast<size_t>(row.lane);
  if (has_half_scales(blocks.shape.format)) {
    std::memcpy(scales + 2 * lane, scale, 2);
    std::memcpy(scales + 2 * (kPanelWidth + lane), scale + 2, 2);
  } else {
    std::memcpy(scales + sizeof(float) * lane, scale, sizeof(float));
  }
  place_stored_codes(blocks, row, k0, block);
}

// Converts a checkpoint's byte scale: nvfp4 to e5m3; mxfp4 to half the scale, one exponent less,
// since products use twice the element. 0: too small, so its group becomes zero.
std::byte packed_scale(WeightFormat format, std::byte scale) {
  const auto code = static_cast<uint8_t>(scale);
  if (format == WeightFormat::kNvfp4) return std::byte{e5m3_from_e4m3(code)};
  return std::byte{code > 0 ? static_cast<uint8_t>(code - 1) : uint8_t{0}};
}

// For formats with byte scales, one per group, before the codes.
void pack_block_of_groups(const Blocks& blocks, const Row& row, int k0, std::byte* block) {
  const PackedShape& shape = blocks.shape;
  BlockCodes codes(blocks, row, k0);
  const auto* stored = static_cast<const std::byte*>(blocks.matrix.scales) + row.first_scale;
  for (int i = 0; i < kGroupsOfBlock && k0 + i * shape.group < shape.k; ++i) {
    const std::byte scale = packed_scale(shape.format, stored[k0 / shape.group + i]);
    block[static_cast<size_t>(i) * kPanelWidth + size_t(row.lane)] = scale;
    const int bytes = shape.group / 2;
    if (scale == std::byte{0}) std::memset(codes.bytes + i * bytes, 0, static_cast<size_t>(bytes));
  }
  place_codes(blocks, codes.bytes, row.lane, block + kGroupsOfBlock * kPanelWidth);
}

// For formats of two levels: scales and minimums of groups before the codes, dmin and d behind.
// Groups of the matrix may be divided.
void pack_two_levels(const Blocks& blocks, const Row& row, int k0, std::byte* block) {
  const int group = blocks.shape.group, stored_group = blocks.matrix.group;
  const size_t all_scales = static_cast<size_t>(kTwoLevelBlock / group) * kPanelWidth;
  const auto* scales = static_cast<const std::byte*>(blocks.matrix.scales) + row.first_scale;
  const std::byte* minimums = blocks.matrix.minimums + row.first_scale;
  const int end = std::min(k0 + kTwoLevelBlock, blocks.shape.k);
  std::byte* to = block + row.lane;
  for (int k = k0; k < end; k += group, to += kPanelWidth) {
    to[0] = scales[k / stored_group];
    to[all_scales] = minimums[k / stored_group];
  }
  place_stored_codes(blocks, row, k0, block + 2 * all_scales);
  const float* of_block = row.block_scales + 2 * (k0 / kTwoLevelBlock);
  auto* ends = reinterpret_cast<float*>(block + blocks.block_bytes - 2 * kScaleBytes);
  ends[row.lane] = of_block[1];
  ends[kPanelWidth + row.lane] = of_block[0];
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
  const Blocks blocks(matrix, shape);
  const int num_blocks = shape.num_blocks();
  const size_t panel_bytes = shape.panel_bytes();
  for (int i = 0; i < matrix.n; ++i) {
    const int target = first_row + i;
    const Row row(blocks, i, target % kPanelWidth);
    std::byte* block = out + static_cast<size_t>(target / kPanelWidth) * panel_bytes;
    for (int b = 0; b < num_blocks; ++b, block += blocks.block_bytes) {
      pack(blocks, row, b * blocks.block_k, block);
    }
  }
}

}  // namespace wideep::kernels
