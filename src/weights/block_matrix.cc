// SPDX-License-Identifier: Apache-2.0
#include "weights/block_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "weights/blocks.h"

namespace wideep::weights {
namespace {

using formats::BlockType;
using formats::GgufTensor;
using kernels::WeightFormat;

// The scale and the minimum of a group as half floats, which they are in the file. Types without
// minimums have codes with an offset: a power of two, so that the product is exact.
uint32_t halves_of_group(BlockType type, const UnpackedBlock& block, int index) {
  const float scale = block.scales[index];
  const float minimum =
      has_minimums(type) ? block.minimums[index] : -scale * static_cast<float>(offset_of(type));
  return f16_from_float(scale) | uint32_t{f16_from_float(minimum)} << 16;
}

// What turns a code of the type into one of the format.
int shift_of(BlockType type, WeightFormat format) {
  if (format == WeightFormat::kInt8) return 128 - offset_of(type);
  return format == WeightFormat::kInt4 ? 8 - offset_of(type) : 0;
}

// The codes and scales of a whole row for a form, one byte for each code.
struct UnpackedRow {
  std::vector<uint8_t> codes;
  std::vector<uint32_t> scales;      // float32, or a pair of half floats
  std::vector<uint8_t> byte_scales;  // of MXFP4

  explicit UnpackedRow(int k) : codes(static_cast<size_t>(k)) {}

  void read(BlockType type, const std::byte* row, const MatrixForm& form) {
    const formats::BlockTypeInfo& info = formats::block_type_info(type);
    const int shift = shift_of(type, form.format), group = group_of(type);
    scales.clear();
    byte_scales.clear();
    UnpackedBlock block;
    for (size_t at = 0; at < codes.size(); at += static_cast<size_t>(info.elements)) {
      uint8_t* const to = codes.data() + at;
      if (type == BlockType::kMxfp4) {
        byte_scales.push_back(unpack_mxfp4(row, to));
      } else {
        unpack_block(type, row, &block);
        for (int i = 0; i < info.elements; ++i) {
          to[i] = static_cast<uint8_t>(block.codes[i] + shift);
        }
        for (int i = 0; i < info.elements; i += form.group) {
          scales.push_back(kernels::has_half_scales(form.format)
                               ? halves_of_group(type, block, i / group)
                               : std::bit_cast<uint32_t>(block.scales[i / group]));
        }
      }
      row += info.bytes;
    }
  }
};

// Moves runs of `step` elements of `from` into the order of the matrix.
template <typename T>
void reorder(const std::vector<T>& from, const std::vector<int32_t>& order, size_t step, T* to) {
  for (const int32_t run : order) {
    to = std::copy_n(from.data() + static_cast<size_t>(run) * step, step, to);
  }
}

void put_codes(const uint8_t* codes, int k, WeightFormat format, std::byte* out) {
  if (!kernels::is_four_bit(format)) {
    std::memcpy(out, codes, static_cast<size_t>(k));
    return;
  }
  for (int i = 0; i < k; i += 2) {
    out[i / 2] = static_cast<std::byte>(codes[i] | codes[i + 1] << 4);
  }
}

// The form of one type. Of those that hold it, not the smallest, but that with the fewest products.
MatrixForm own_form(BlockType type) {
  switch (type) {
    case BlockType::kQ8_0:
    case BlockType::kQ5_0:
    case BlockType::kIq4Nl:
    case BlockType::kIq4Xs:
      return {WeightFormat::kInt8, 32};
    case BlockType::kQ6K:
      return {WeightFormat::kInt8, 16};
    case BlockType::kQ4_0:
      return {WeightFormat::kInt4, 32};
    case BlockType::kQ3K:
      return {WeightFormat::kInt4, 16};
    case BlockType::kMxfp4:
      return {WeightFormat::kMxfp4, 32};
    case BlockType::kQ4_1:
      return {WeightFormat::kInt4h, 32};
    case BlockType::kQ5_1:
      return {WeightFormat::kInt8h, 32};
    case BlockType::kQ4K:
      return {WeightFormat::kInt4m, 32};
    case BlockType::kQ5K:
      return {WeightFormat::kInt8m, 32};
    case BlockType::kQ2K:
      return {WeightFormat::kInt4m, 16};
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBf16:
      break;
  }
  return default_form(WeightFormat::kBf16);
}

// From the smallest to the largest: 4.75, 5, 5, 5.25, 6, 8.75, 9, 9, 9.25 and 10 bits an element.
constexpr MatrixForm kForms[] = {
    {WeightFormat::kInt4m, 32}, {WeightFormat::kInt4, 32},  {WeightFormat::kInt4h, 32},
    {WeightFormat::kInt4m, 16}, {WeightFormat::kInt4, 16},  {WeightFormat::kInt8m, 32},
    {WeightFormat::kInt8, 32},  {WeightFormat::kInt8h, 32}, {WeightFormat::kInt8m, 16},
    {WeightFormat::kInt8, 16},
};

}  // namespace

CodedSource::Rows RowSource::rows(int, int, const MatrixForm& form) const {
  WIDEEP_CHECK(holds(form));  // a source that holds a form has rows of its own
  return {};
}

bool BlockMatrix::holds(BlockType type, const MatrixForm& form, int column_step) {
  const int group = group_of(type);
  if (group == 0 || form.group == 0 || group % form.group != 0) return false;
  if (column_step % group != 0) return false;  // or it would split groups
  const bool by_32 = !weights::has_two_levels(type) && type != BlockType::kMxfp4;
  // Kernels have these groups of two levels. Columns that move take d and dmin with them.
  const bool by_256 = weights::has_two_levels(type) && form.group >= 16 && column_step == 0;
  const bool four_bits = type == BlockType::kQ4_0 || type == BlockType::kQ4_1 ||
                         type == BlockType::kQ2K || type == BlockType::kQ3K ||
                         type == BlockType::kQ4K;
  switch (form.format) {
    case WeightFormat::kMxfp4:
      return type == BlockType::kMxfp4 && form.group == 32;
    case WeightFormat::kInt4:
      return type == BlockType::kQ4_0 || type == BlockType::kQ3K;
    case WeightFormat::kInt8:
      return !has_minimums(type) && type != BlockType::kMxfp4;
    case WeightFormat::kInt4h:
      return by_32 && four_bits;
    case WeightFormat::kInt8h:
      // An offset of 128 might not fit a half float after the product with the scale.
      return by_32 && offset_of(type) < 128;
    case WeightFormat::kInt4m:
      return by_256 && four_bits;
    case WeightFormat::kInt8m:
      return by_256;
    case WeightFormat::kF32:
    case WeightFormat::kBf16:
    case WeightFormat::kFp8:
    case WeightFormat::kNvfp4:
      break;
  }
  return false;
}

MatrixForm BlockMatrix::form_of(std::span<const BlockType> types, int column_step) {
  const auto all_in = [&](const MatrixForm& form) {
    return std::ranges::all_of(types,
                               [&](BlockType type) { return holds(type, form, column_step); });
  };
  const MatrixForm floats = default_form(WeightFormat::kBf16);
  if (types.empty()) return floats;
  if (const MatrixForm own = own_form(types.front()); all_in(own)) return own;
  for (const MatrixForm& form : kForms) {
    if (all_in(form)) return form;
  }
  // Some are quantised again: in int8, with more bits than all that no format holds together, and
  // in the groups of those that it holds.
  MatrixForm nearest{WeightFormat::kInt8, 32};
  for (const BlockType type : types) {
    if (group_of(type) == 0) return floats;
    nearest.group = std::min(nearest.group, group_of(type));
  }
  return column_step % nearest.group == 0 ? nearest : floats;
}

BlockMatrix::BlockMatrix(BlockRows rows, int n, int k) : rows_(std::move(rows)), n_(n), k_(k) {
  for (const GgufTensor* part : rows_.parts) WIDEEP_CHECK_EQ(part->columns(), k_);
}

bool BlockMatrix::holds(const MatrixForm& form) const {
  const int step = rows_.columns.empty() ? 0 : rows_.column_step;
  return std::ranges::all_of(rows_.parts,
                             [&](const GgufTensor* part) { return holds(part->type, form, step); });
}

BlockRow BlockMatrix::row_of(int row) const {
  if (!rows_.map.empty()) return rows_.map[static_cast<size_t>(row)];
  return {0, static_cast<int32_t>(rows_.first + row)};
}

const std::byte* BlockMatrix::bytes_of(const BlockRow& row) const {
  const GgufTensor& part = *rows_.parts[static_cast<size_t>(row.part)];
  return part.bytes.data() + static_cast<size_t>(row.index) * part.row_bytes();
}

void BlockMatrix::to_float32(int begin, int end, float* out) const {
  std::vector<float> stored;
  for (int row = begin; row < end; ++row, out += k_) {
    const BlockRow at = row_of(row);
    const BlockType type = type_of(at);
    if (rows_.columns.empty()) {
      dequantize_blocks(type, bytes_of(at), k_, out);
      continue;
    }
    stored.resize(static_cast<size_t>(k_));
    dequantize_blocks(type, bytes_of(at), k_, stored.data());
    reorder(stored, rows_.columns, static_cast<size_t>(rows_.column_step), out);
  }
}

CodedSource::Rows BlockMatrix::two_level_rows(int begin, int end, const MatrixForm& form) const {
  constexpr int kBlock = kernels::kTwoLevelBlock;
  CodedSource::Rows coded;
  coded.view = {.format = form.format, .n = end - begin, .k = k_, .group = form.group};
  const size_t block_bytes = kernels::is_four_bit(form.format) ? kBlock / 2 : kBlock;
  const auto count = static_cast<size_t>(end - begin);
  coded.codes.resize(count * coded.view.row_bytes());
  coded.scales.resize(count * static_cast<size_t>(coded.view.num_groups()));
  coded.minimums.resize(coded.scales.size());
  std::byte *codes = coded.codes.data(), *scales = coded.scales.data();
  std::byte* minimums = coded.minimums.data();
  TwoLevelBlock block;
  for (int row = begin; row < end; ++row) {
    const BlockRow at = row_of(row);
    const BlockType type = type_of(at);
    const int group = group_of(type);
    const std::byte* from = bytes_of(at);
    for (int k = 0; k < k_; k += kBlock, codes += block_bytes) {
      unpack_two_levels(type, from, &block);
      from += formats::block_type_info(type).bytes;
      put_codes(block.codes, kBlock, form.format, codes);
      for (int i = 0; i < kBlock; i += form.group) {
        *scales++ = std::byte{block.scales[i / group]};
        *minimums++ = std::byte{block.minimums[i / group]};
      }
      coded.block_scales.insert(coded.block_scales.end(), {block.d, block.dmin});
    }
  }
  coded.view.codes = coded.codes.data();
  coded.view.scales = coded.scales.data();
  coded.view.minimums = coded.minimums.data();
  coded.view.block_scales = coded.block_scales.data();
  return coded;
}

CodedSource::Rows BlockMatrix::rows(int begin, int end, const MatrixForm& form) const {
  WIDEEP_CHECK(holds(form));
  if (kernels::has_two_levels(form.format)) return two_level_rows(begin, end, form);
  const auto count = static_cast<size_t>(end - begin);
  CodedSource::Rows coded;
  coded.view = {.format = form.format, .n = end - begin, .k = k_, .group = form.group};
  const size_t row_bytes = coded.view.row_bytes();
  const bool bytes = kernels::has_byte_scales(form.format);
  const size_t scales_of_row =
      static_cast<size_t>(coded.view.num_groups()) * kernels::scale_bytes(form.format);
  coded.codes.resize(count * row_bytes);
  coded.scales.resize(count * scales_of_row);
  UnpackedRow row(k_);
  const auto step = static_cast<size_t>(rows_.column_step);
  const auto move_columns = [&](auto* values, size_t size) {
    const auto stored = *values;
    reorder(stored, rows_.columns, size, values->data());
  };
  for (size_t i = 0; i < count; ++i) {
    const BlockRow at = row_of(begin + static_cast<int>(i));
    row.read(type_of(at), bytes_of(at), form);
    if (!rows_.columns.empty()) {
      const size_t groups_of_step = step / static_cast<size_t>(form.group);
      move_columns(&row.codes, step);
      bytes ? move_columns(&row.byte_scales, groups_of_step)
            : move_columns(&row.scales, groups_of_step);
    }
    put_codes(row.codes.data(), k_, form.format, coded.codes.data() + i * row_bytes);
    std::memcpy(coded.scales.data() + i * scales_of_row,
                bytes ? static_cast<const void*>(row.byte_scales.data()) : row.scales.data(),
                scales_of_row);
  }
  coded.view.codes = coded.codes.data();
  coded.view.scales = coded.scales.data();
  return coded;
}

std::vector<std::span<const std::byte>> BlockMatrix::sources() const {
  std::vector<std::span<const std::byte>> all;
  if (rows_.map.empty()) {
    const size_t row_bytes = rows_.parts.front()->row_bytes();
    return {rows_.parts.front()->bytes.subspan(static_cast<size_t>(rows_.first) * row_bytes,
                                               static_cast<size_t>(n_) * row_bytes)};
  }
  for (const GgufTensor* part : rows_.parts) {
    // Tensors of all experts, or with rows of several matrices: a part of the right size.
    const size_t most = static_cast<size_t>(n_) * part->row_bytes();
    all.push_back(part->bytes.first(std::min(most, part->bytes.size())));
  }
  return all;
}

}  // namespace wideep::weights
