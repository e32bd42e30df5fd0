// SPDX-License-Identifier: Apache-2.0
#include "weights/block_matrix.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "weights/blocks.h"

namespace wideep::weights {
namespace {

using formats::BlockType;
using formats::GgufTensor;
using kernels::WeightFormat;

// The codes and scales of a whole row, one byte for each code.
struct UnpackedRow {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  std::vector<uint8_t> byte_scales;  // of MXFP4

  explicit UnpackedRow(int k) : codes(static_cast<size_t>(k)) {}

  void read(BlockType type, const std::byte* row) {
    const formats::BlockTypeInfo& info = formats::block_type_info(type);
    const int group = group_of(type), groups = info.elements / group;
    scales.clear();
    byte_scales.clear();
    UnpackedBlock block;
    for (size_t at = 0; at < codes.size(); at += static_cast<size_t>(info.elements)) {
      if (type == BlockType::kMxfp4) {
        byte_scales.push_back(unpack_mxfp4(row, codes.data() + at));
      } else {
        unpack_block(type, row, &block);
        std::copy_n(block.codes, info.elements, codes.data() + at);
        scales.insert(scales.end(), block.scales, block.scales + groups);
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

// What turns a code of the type into one of the format.
int shift_of(BlockType type, WeightFormat format) {
  if (format == WeightFormat::kInt8) return 128 - offset_of(type);
  return format == WeightFormat::kInt4 ? 8 - offset_of(type) : 0;
}

void put_codes(const uint8_t* codes, int k, int shift, WeightFormat format, std::byte* out) {
  if (!kernels::is_four_bit(format)) {
    for (int i = 0; i < k; ++i) out[i] = static_cast<std::byte>(codes[i] + shift);
    return;
  }
  for (int i = 0; i < k; i += 2) {
    const auto low = static_cast<unsigned>(codes[i] + shift);
    const auto high = static_cast<unsigned>(codes[i + 1] + shift);
    out[i / 2] = static_cast<std::byte>(low | high << 4);
  }
}

}  // namespace

CodedSource::Rows RowSource::rows(int, int) const {
  WIDEEP_CHECK(kernels::is_coded(form().format));  // a source of codes has rows of its own
  return {};
}

MatrixForm BlockMatrix::form_of(BlockType type) {
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
      return default_form(WeightFormat::kMxfp4);
    case BlockType::kQ4K:
      return default_form(WeightFormat::kInt4m);
    case BlockType::kF32:
    case BlockType::kF16:
    case BlockType::kBf16:
    case BlockType::kQ4_1:
    case BlockType::kQ5_1:
    case BlockType::kQ2K:
    case BlockType::kQ5K:
      break;
  }
  return default_form(WeightFormat::kBf16);
}

MatrixForm BlockMatrix::packed_form(BlockType type) {
  if (type == BlockType::kQ2K) return {WeightFormat::kInt4, 16};
  if (type == BlockType::kQ4_1 || type == BlockType::kQ5_1 || type == BlockType::kQ5K) {
    return {WeightFormat::kInt8, 32};
  }
  return form_of(type);
}

BlockMatrix::BlockMatrix(BlockRows rows, int n, int k) : rows_(std::move(rows)), n_(n), k_(k) {
  const BlockType type = rows_.parts.front()->type;
  form_ = form_of(type);
  for (const GgufTensor* part : rows_.parts) {
    WIDEEP_CHECK_EQ(part->columns(), k_);
    if (part->type != type) form_ = default_form(WeightFormat::kBf16);
  }
  // Blocks of Q4_K are larger than heads.
  const bool splits_blocks = !rows_.columns.empty() && form_.format == WeightFormat::kInt4m;
  const bool splits_groups =
      !rows_.columns.empty() && rows_.column_step % std::max(form_.group, 1) != 0;
  if (splits_groups || splits_blocks) form_ = default_form(WeightFormat::kBf16);
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
    const BlockType type = rows_.parts[static_cast<size_t>(at.part)]->type;
    if (rows_.columns.empty()) {
      dequantize_blocks(type, bytes_of(at), k_, out);
      continue;
    }
    stored.resize(static_cast<size_t>(k_));
    dequantize_blocks(type, bytes_of(at), k_, stored.data());
    reorder(stored, rows_.columns, static_cast<size_t>(rows_.column_step), out);
  }
}

// As rows(), for Q4_K.
CodedSource::Rows BlockMatrix::rows_of_minimums(int begin, int end) const {
  constexpr int kBlock = 256, kGroups = kernels::kGroupsOfInt4mBlock;
  CodedSource::Rows coded;
  coded.view = {.format = form_.format, .n = end - begin, .k = k_, .group = form_.group};
  const size_t bytes = formats::block_type_info(BlockType::kQ4K).bytes;
  const size_t row_bytes = coded.view.row_bytes();
  coded.codes.resize(static_cast<size_t>(end - begin) * row_bytes);
  std::byte* codes = coded.codes.data();
  const auto append = [](const uint8_t* from, std::vector<std::byte>* to) {
    const auto* first = reinterpret_cast<const std::byte*>(from);
    to->insert(to->end(), first, first + kGroups);
  };
  Q4kBlock block;
  for (int row = begin; row < end; ++row) {
    const std::byte* from = bytes_of(row_of(row));
    for (int at = 0; at < k_; at += kBlock, from += bytes, codes += kBlock / 2) {
      unpack_q4k(from, &block);
      put_codes(block.codes, kBlock, 0, form_.format, codes);
      append(block.scales, &coded.scales);
      append(block.minimums, &coded.minimums);
      coded.block_scales.insert(coded.block_scales.end(), {block.d, block.dmin});
    }
  }
  coded.view.codes = coded.codes.data();
  coded.view.scales = coded.scales.data();
  coded.view.minimums = coded.minimums.data();
  coded.view.block_scales = coded.block_scales.data();
  return coded;
}

CodedSource::Rows BlockMatrix::rows(int begin, int end) const {
  if (form_.format == WeightFormat::kInt4m) return rows_of_minimums(begin, end);
  const BlockType type = rows_.parts.front()->type;
  const auto count = static_cast<size_t>(end - begin);
  CodedSource::Rows coded;
  coded.view = {.format = form_.format, .n = end - begin, .k = k_, .group = form_.group};
  const size_t row_bytes = coded.view.row_bytes();
  const auto groups = static_cast<size_t>(coded.view.num_groups());
  const bool bytes = kernels::has_byte_scales(form_.format);
  const size_t scales_of_row = groups * (bytes ? 1 : sizeof(float));
  coded.codes.resize(count * row_bytes);
  coded.scales.resize(count * scales_of_row);
  UnpackedRow row(k_);
  std::vector<uint8_t> codes(row.codes.size());
  std::vector<float> scales(groups);
  const auto step = static_cast<size_t>(rows_.column_step);
  const int shift = shift_of(type, form_.format);
  for (size_t i = 0; i < count; ++i) {
    row.read(type, bytes_of(row_of(begin + static_cast<int>(i))));
    std::byte* to_codes = coded.codes.data() + i * row_bytes;
    std::byte* to_scales = coded.scales.data() + i * scales_of_row;
    if (!rows_.columns.empty()) {
      const size_t groups_of_step = step / static_cast<size_t>(form_.group);
      codes = row.codes;
      reorder(codes, rows_.columns, step, row.codes.data());
      if (bytes) {
        const std::vector<uint8_t> stored = row.byte_scales;
        reorder(stored, rows_.columns, groups_of_step, row.byte_scales.data());
      } else {
        scales = row.scales;
        reorder(scales, rows_.columns, groups_of_step, row.scales.data());
      }
    }
    put_codes(row.codes.data(), k_, shift, form_.format, to_codes);
    std::memcpy(to_scales,
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
