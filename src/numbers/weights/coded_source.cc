// SPDX-License-Identifier: Apache-2.0
//
// rows() gives the kernels a view that points into the file where its order, zero points and
// distance between rows are theirs already; otherwise codes are gathered. Gathering unpacks to one
// byte for each code, adds 128 − zero point where zero points differ from the middle, and packs
// again: one way for all orders.
//
// Orders by lines (GPTQ, AWQ, transposed fp8) keep a column's codes of all rows together. There
// the loop over rows is the inner one, so that the file is read forward and a word of it is used
// while it is in the cache.
#include "weights/coded_source.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/microscaling.h"
#include "weights/checkpoint.h"

namespace wideep::weights {
namespace {

using kernels::CodedMatrix;
using kernels::WeightFormat;

// Words may be unaligned, because tensors of a file can begin at any byte.
uint32_t word_at(const std::byte* bytes, int64_t index) {
  uint32_t word;
  std::memcpy(&word, bytes + index * int64_t{sizeof(word)}, sizeof(word));
  return word;
}

// The nibble of each of eight consecutive rows in a word of AWQ.
constexpr std::array<int, 8> kAwqNibbles = {0, 4, 1, 5, 2, 6, 3, 7};

void read_scales(const ScaleGrid& grid, int64_t row, int64_t count, float* out) {
  if (grid.entry->dtype == Dtype::kF8E8M0 || grid.entry->dtype == Dtype::kU8) {
    const auto* codes = reinterpret_cast<const uint8_t*>(grid.entry->bytes.data());
    for (int64_t i = 0; i < count; ++i) out[i] = float_from_e8m0(codes[grid.index(row, i)]);
  } else if (grid.column_stride == 1) {
    to_float32(*grid.entry, grid.index(row, 0), count, out);
  } else {
    for (int64_t i = 0; i < count; ++i) to_float32(*grid.entry, grid.index(row, i), 1, out + i);
  }
}

}  // namespace

int CodedSource::zero_point(int64_t row, int64_t group_index) const {
  const int64_t per_word = 32 / bits;
  const int64_t word = row / per_word;
  int at = static_cast<int>(row % per_word);
  if (zeros == Zeros::kAwq) at = kAwqNibbles[static_cast<size_t>(at)];
  const int64_t index = zeros == Zeros::kWordsByGroups ? word * zero_stride + group_index
                                                       : group_index * zero_stride + word;
  const uint32_t mask = (1u << bits) - 1;
  const uint32_t stored = word_at(zero_words, index) >> (at * bits);
  return static_cast<int>((stored + static_cast<uint32_t>(zero_offset)) & mask);
}

// Rows [begin, end) of integer codes, one byte each.
void CodedSource::unpack(int begin, int end, uint8_t* out) const {
  const auto width = static_cast<size_t>(k);
  const int per_word = 32 / bits;
  const uint32_t mask = (1u << bits) - 1;
  const int count = end - begin;
  const auto to = [&](int row) { return out + static_cast<size_t>(row) * width; };
  switch (order) {
    case Order::kRows:
      for (int row = 0; row < count; ++row) {
        const auto* from =
            reinterpret_cast<const uint8_t*>(codes + stored_row(begin + row) * stride);
        for (int i = 0; i < k; ++i) {
          to(row)[i] = bits == 8 ? from[i] : from[i / 2] >> (i % 2 * 4) & 15;
        }
      }
      return;
    case Order::kSignedBytes:
      for (int row = 0; row < count; ++row) {
        const std::byte* from = codes + stored_row(begin + row) * stride;
        for (int i = 0; i < k; ++i) to(row)[i] = static_cast<uint8_t>(from[i] ^ std::byte{0x80});
      }
      return;
    case Order::kLines:
      for (int i = 0; i < k; i += per_word) {
        const std::byte* line = codes + i / per_word * stride;
        for (int row = 0; row < count; ++row) {
          const uint32_t word = word_at(line, stored_row(begin + row));
          for (int j = 0; j < std::min(per_word, k - i); ++j) {
            to(row)[i + j] = static_cast<uint8_t>(word >> (j * bits) & mask);
          }
        }
      }
      return;
    case Order::kAwqLines:
      for (int i = 0; i < k; ++i) {
        const std::byte* line = codes + i * stride;
        for (int row = 0; row < count; ++row) {
          const int64_t from = stored_row(begin + row);
          const int shift = 4 * kAwqNibbles[static_cast<size_t>(from % 8)];
          to(row)[i] = static_cast<uint8_t>(word_at(line, from / 8) >> shift & 15);
        }
      }
      return;
    case Order::kColumns:
      for (int i = 0; i < k; ++i) {
        for (int row = 0; row < count; ++row) {
          to(row)[i] = static_cast<uint8_t>(codes[i * stride + stored_row(begin + row)]);
        }
      }
      return;
  }
}

bool CodedSource::is_zero(int row, int64_t group_index) const {
  std::vector<uint8_t> all(static_cast<size_t>(k));
  unpack(row, row + 1, all.data());
  const bool is_fp8 = format == WeightFormat::kFp8;
  const int middle = bits == 8 ? 128 : 8;
  const int zero = is_fp8                  ? 0
                   : zeros == Zeros::kNone ? middle
                                           : zero_point(stored_row(row), group_index);
  const auto begin = all.begin() + std::min<int64_t>(group_index * group, k);
  const auto end = all.begin() + std::min<int64_t>((group_index + 1) * group, k);
  return std::all_of(begin, end,
                     [&](uint8_t code) { return (is_fp8 ? code & 0x7f : code) == zero; });
}

std::vector<float> CodedSource::float_scales(int begin, int end) const {
  std::vector<float> values(static_cast<size_t>(end - begin) * static_cast<size_t>(num_groups));
  for (int row = begin; row < end; ++row) {
    read_scales(scales, stored_row(row), num_groups, values.data() + (row - begin) * num_groups);
  }
  return values;
}

// The codes of rows that are not stored as the kernels have them.
std::vector<std::byte> CodedSource::gathered_codes(int begin, int end) const {
  const auto count = static_cast<size_t>(end - begin), width = static_cast<size_t>(k);
  const bool nibbles = kernels::is_four_bit(format);
  const size_t row_bytes = nibbles ? (width + 1) / 2 : width;
  std::vector<std::byte> gathered(count * row_bytes);
  if (order == Order::kRows && zeros == Zeros::kNone) {
    for (size_t row = 0; row < count; ++row) {
      std::memcpy(gathered.data() + row * row_bytes,
                  codes + stored_row(begin + static_cast<int>(row)) * stride, row_bytes);
    }
    return gathered;
  }
  std::vector<uint8_t> unpacked(count * width);
  unpack(begin, end, unpacked.data());
  for (size_t row = 0; row < count; ++row) {
    uint8_t* from = unpacked.data() + row * width;
    if (zeros != Zeros::kNone) {
      for (int64_t i = 0; i < num_groups; ++i) {
        const int shift = 128 - zero_point(stored_row(begin + static_cast<int>(row)), i);
        uint8_t* const last = from + std::min<int64_t>((i + 1) * group, k);
        for (uint8_t* code = from + i * group; code < last; ++code) {
          *code = static_cast<uint8_t>(*code + shift);
        }
      }
    }
    std::byte* out = gathered.data() + row * row_bytes;
    for (size_t i = 0; i < row_bytes; ++i) {
      const auto low = static_cast<unsigned>(from[nibbles ? 2 * i : i]);
      const unsigned high = nibbles && 2 * i + 1 < width ? from[2 * i + 1] : 0u;
      out[i] = static_cast<std::byte>(low | high << 4);
    }
  }
  return gathered;
}

CodedSource::Rows CodedSource::rows(int begin, int end) const {
  Rows rows;
  rows.view = {
      .format = format, .n = end - begin, .k = k, .group = static_cast<int>(group), .scale = scale};
  const bool in_file = order == Order::kRows && zeros == Zeros::kNone && row_step == 1 &&
                       stride == static_cast<int64_t>(rows.view.row_bytes());
  if (!in_file) rows.codes = gathered_codes(begin, end);
  rows.view.codes = in_file ? codes + stored_row(begin) * stride : rows.codes.data();
  if (!kernels::has_byte_scales(format)) {
    const std::vector<float> values = float_scales(begin, end);
    const auto bytes = std::as_bytes(std::span(values));
    rows.scales.assign(bytes.begin(), bytes.end());
    rows.view.scales = rows.scales.data();
  } else if (row_step == 1) {
    rows.view.scales = scales.at(stored_row(begin));
  } else {
    for (int row = begin; row < end; ++row) {
      const std::byte* from = scales.at(stored_row(row));
      rows.scales.insert(rows.scales.end(), from, from + num_groups);
    }
    rows.view.scales = rows.scales.data();
  }
  return rows;
}

void CodedSource::to_float32(int begin, int end, float* out) const {
  if (has_format()) {
    const Rows part = rows(begin, end);
    return kernels::dequantize_rows(part.view, 0, end - begin, out);
  }
  std::vector<uint8_t> unpacked(static_cast<size_t>(end - begin) * static_cast<size_t>(k));
  unpack(begin, end, unpacked.data());
  const std::vector<float> factors = float_scales(begin, end);
  const uint8_t* code = unpacked.data();
  for (int row = begin; row < end; ++row) {
    for (int64_t i = 0; i < num_groups; ++i) {
      const float factor = factors[static_cast<size_t>((row - begin) * num_groups + i)];
      const int zero = zero_point(stored_row(row), i);
      for (int64_t at = i * group; at < std::min<int64_t>((i + 1) * group, k); ++at) {
        *out++ = factor * static_cast<float>(*code++ - zero);
      }
    }
  }
}

}  // namespace wideep::weights
