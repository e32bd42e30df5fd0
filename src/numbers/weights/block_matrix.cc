// SPDX-License-Identifier: Apache-2.0
//
// own_form() and holds() are the tables of the header as code. form_of() takes the form of the
// first type if all types fit into it, else the smallest that holds them all, else int8, into
// which some values are then rounded; or bf16 if one of the types has plain floats or columns move
// in steps that would split groups.
//
// Rows are decoded one at a time: codes go into a buffer of a row, then into the order of the
// matrix, and at last into the form's layout. Codes of 8 bits whose columns stay are decoded in
// place. Columns move in steps of whole groups, so a group's scale moves with its codes; that is
// why holds() refuses steps that would split one. Forms of two levels keep the file's scales as
// the whole numbers they are, block by block; their d and dmin belong to 256 columns, so their
// columns cannot move. Q4_K, whose nibbles only need another order, skips the buffer.
#include "weights/block_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "weights/blocks.h"

namespace wideep::weights {
namespace {

using kernels::WeightFormat;
using tensor_files::BlockType;
using tensor_files::GgufTensor;

// The scale and the minimum of a group as half floats, which they are in the file. Types without
// minimums have codes with an offset: a power of two, so that the product is exact.
uint32_t halves_of_group(BlockType type, float scale, float minimum) {
  if (!has_minimums(type)) minimum = -scale * static_cast<float>(offset_of(type));
  return f16_from_float(scale) | uint32_t{f16_from_float(minimum)} << 16;
}

// What turns a code of the type into one of the format.
int shift_of(BlockType type, WeightFormat format) {
  if (format == WeightFormat::kInt8) return 128 - offset_of(type);
  return format == WeightFormat::kInt4 ? 8 - offset_of(type) : 0;
}

// The scales of a whole row for a form.
struct RowScales {
  std::vector<uint32_t> scales;      // float32, or a pair of half floats
  std::vector<uint8_t> byte_scales;  // of MXFP4

  // codes: k, one byte for each.
  void read(BlockType type, const std::byte* row, int k, const MatrixForm& form, uint8_t* codes) {
    if (type == BlockType::kMxfp4) return read_mxfp4(row, k, codes);
    const int group = group_of(type), shift = shift_of(type, form.format);
    stored_scales_.resize(static_cast<size_t>(k / group));
    stored_minimums_.resize(stored_scales_.size());
    unpack_blocks(type, row, k, {codes, stored_scales_.data(), stored_minimums_.data()});
    if (shift != 0) {
      for (int i = 0; i < k; ++i) codes[i] = static_cast<uint8_t>(codes[i] + shift);
    }
    const bool halves = kernels::has_half_scales(form.format);
    scales.resize(static_cast<size_t>(k / form.group));
    for (size_t i = 0; i < scales.size(); ++i) {
      const size_t from = i * static_cast<size_t>(form.group) / static_cast<size_t>(group);
      scales[i] = halves ? halves_of_group(type, stored_scales_[from], stored_minimums_[from])
                         : std::bit_cast<uint32_t>(stored_scales_[from]);
    }
  }

 private:
  void read_mxfp4(const std::byte* row, int k, uint8_t* codes) {
    const tensor_files::BlockTypeInfo& info = tensor_files::block_type_info(BlockType::kMxfp4);
    byte_scales.clear();
    for (int at = 0; at < k; at += info.elements, row += info.bytes) {
      byte_scales.push_back(unpack_mxfp4(row, codes + at));
    }
  }

  std::vector<float> stored_scales_, stored_minimums_;
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
    uint16_t pair;  // not two bytes: so it becomes vectors
    std::memcpy(&pair, codes + i, sizeof(pair));
    out[i / 2] = static_cast<std::byte>(pair | pair >> 4);
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
    case BlockType::kI32:
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
  const bool pairs = kernels::is_four_bit(form.format);
  const size_t block_bytes = pairs ? kBlock / 2 : kBlock;
  const auto count = static_cast<size_t>(end - begin);
  coded.codes.resize(count * coded.view.row_bytes());
  coded.scales.resize(count * static_cast<size_t>(coded.view.num_groups()));
  coded.minimums.resize(coded.scales.size());
  std::byte *codes = coded.codes.data(), *scales = coded.scales.data();
  std::byte* minimums = coded.minimums.data();
  coded.block_scales.reserve(2 * count * static_cast<size_t>(coded.view.num_blocks()));
  uint8_t unpacked[kBlock];
  TwoLevelScales block;
  for (int row = begin; row < end; ++row) {
    const BlockRow at = row_of(row);
    const BlockType type = type_of(at);
    const int group = group_of(type);
    const std::byte* from = bytes_of(at);
    for (int k = 0; k < k_; k += kBlock, codes += block_bytes) {
      if (pairs && type == BlockType::kQ4K) {
        unpack_q4k_pairs(from, codes, &block);
      } else {
        unpack_two_levels(type, from, unpacked, &block);
        put_codes(unpacked, kBlock, form.format, codes);
      }
      from += tensor_files::block_type_info(type).bytes;
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
  RowScales row;
  std::vector<uint8_t> unpacked(static_cast<size_t>(k_));
  const auto step = static_cast<size_t>(rows_.column_step);
  const auto move_columns = [&](auto* values, size_t size) {
    const auto stored = *values;
    reorder(stored, rows_.columns, size, values->data());
  };
  const bool as_stored = rows_.columns.empty();
  const bool in_place = as_stored && !kernels::is_four_bit(form.format);
  for (size_t i = 0; i < count; ++i) {
    const BlockRow at = row_of(begin + static_cast<int>(i));
    std::byte* const codes = coded.codes.data() + i * row_bytes;
    row.read(type_of(at), bytes_of(at), k_, form,
             in_place ? reinterpret_cast<uint8_t*>(codes) : unpacked.data());
    if (!as_stored) {
      const size_t groups_of_step = step / static_cast<size_t>(form.group);
      move_columns(&unpacked, step);
      bytes ? move_columns(&row.byte_scales, groups_of_step)
            : move_columns(&row.scales, groups_of_step);
    }
    if (!in_place) put_codes(unpacked.data(), k_, form.format, codes);
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
    const size_t max = static_cast<size_t>(n_) * part->row_bytes();
    all.push_back(part->bytes.first(std::min(max, part->bytes.size())));
  }
  return all;
}

}  // namespace wideep::weights
