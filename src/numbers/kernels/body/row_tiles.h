// SPDX-License-Identifier: Apache-2.0
//
// The layout of rows of x for tiles. A step multiplies with four bytes of a row, a word: one float,
// a pair of bf16, or four int8. A tile interleaves the words of its rows,
//
//   [words of a row][height]
//
// so that one pointer reads all of them: one pointer per row would need more registers than there
// are. Rows are packed like this once per product. Included by body/matmul.h.
#pragma once

inline constexpr size_t kWordBytes = 4;

// The words of a row of x.
struct RowWords {
  int count;         // number of words
  size_t row_bytes;  // may end in the middle of the last word
  // Quantised rows only:
  int scales = 0;          // index of the first scale
  int sums = 0;            // index of the first sum
  int num_sums = 0;        // number of sums
  int32_t sum_factor = 0;  // products add sum × factor, to subtract the weights' offset

  explicit RowWords(const PackedShape& w) {
    if (!takes_quantized_rows(w.format)) {
      const size_t element = w.format == WeightFormat::kF32 ? 4 : 2;
      row_bytes = static_cast<size_t>(w.k) * element;
      count = static_cast<int>((row_bytes + kWordBytes - 1) / kWordBytes);
      return;
    }
    const QuantizedRowShape row = quantized_row_shape(w);
    scales = static_cast<int>(row.scales_offset() / kWordBytes);
    sums = static_cast<int>(row.sums_offset() / kWordBytes);
    num_sums = row.num_sums();
    count = sums + num_sums;
    row_bytes = static_cast<size_t>(count) * kWordBytes;
    // Minimums are multiplied with the sums themselves.
    if (has_minimums(w.format)) {
      sum_factor = 1;
      return;
    }
    sum_factor = -(w.format == WeightFormat::kInt8   ? 128
                   : w.format == WeightFormat::kInt4 ? 8
                                                     : kE2m1Offset);
  }
  size_t tile_bytes(int height) const {
    return static_cast<size_t>(count) * static_cast<size_t>(height) * kWordBytes;
  }
};

// Transposes four words of four rows. Words of `out` are `step` bytes apart.
inline void transpose_four(const std::byte* const* rows, size_t at, std::byte* out, size_t step) {
  const auto row = [&](int r) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + at));
  };
  const auto put = [&](int word, __m128i v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + static_cast<size_t>(word) * step), v);
  };
  const __m128i lower01 = _mm_unpacklo_epi32(row(0), row(1));
  const __m128i lower23 = _mm_unpacklo_epi32(row(2), row(3));
  const __m128i upper01 = _mm_unpackhi_epi32(row(0), row(1));
  const __m128i upper23 = _mm_unpackhi_epi32(row(2), row(3));
  put(0, _mm_unpacklo_epi64(lower01, lower23));
  put(1, _mm_unpackhi_epi64(lower01, lower23));
  put(2, _mm_unpacklo_epi64(upper01, upper23));
  put(3, _mm_unpackhi_epi64(upper01, upper23));
}

// Bytes that may be written after a tile: rows are written four at a time, even if fewer remain.
inline constexpr size_t kBehindTile = 3 * kWordBytes;

// Packs rows [first, first + count) of x into a tile. If the tile is higher, the last row is
// repeated.
inline void pack_tile(const InputRows& x, const RowWords& words, int first, int count, int height,
                      std::byte* out) {
  const size_t step = static_cast<size_t>(height) * kWordBytes;
  int word = 0;
  if (height == 1) {
    word = static_cast<int>(words.row_bytes / kWordBytes);
    std::memcpy(out, x[first], static_cast<size_t>(word) * kWordBytes);
  }
  // Four rows at once, sixteen words of each: about a cache line.
  constexpr int kLine = 16;
  const std::byte* rows[kTileRows + 3];
  const int padded = (height + 3) / 4 * 4;
  for (int r = 0; r < padded; ++r) {
    rows[r] = static_cast<const std::byte*>(x[first + std::min(r, count - 1)]);
  }
  const int whole = static_cast<int>(words.row_bytes / kWordBytes);
  for (; word + 4 <= whole;) {
    const int end = std::min(word + kLine, whole / 4 * 4);
    // From the last four rows to the first: the rows that do not exist are written into the next
    // word's place, and the next word's first rows then overwrite them.
    for (int r = padded - 4; r >= 0; r -= 4) {
      for (int i = word; i < end; i += 4) {
        transpose_four(rows + r, static_cast<size_t>(i) * kWordBytes,
                       out + static_cast<size_t>(i) * step + static_cast<size_t>(r) * kWordBytes,
                       step);
      }
    }
    word = end;
  }
  for (; word < words.count; ++word) {
    const size_t at = static_cast<size_t>(word) * kWordBytes;
    for (int r = 0; r < height; ++r) {
      uint32_t value = 0;
      std::memcpy(&value, rows[r] + at, std::min(kWordBytes, words.row_bytes - at));
      std::memcpy(out + static_cast<size_t>(word) * step + static_cast<size_t>(r) * kWordBytes,
                  &value, kWordBytes);
    }
  }
  std::byte* sum = out + static_cast<size_t>(words.sums) * step;
  for (int i = 0; i < words.num_sums * height; ++i, sum += kWordBytes) {
    int32_t value;
    std::memcpy(&value, sum, kWordBytes);
    value *= words.sum_factor;
    std::memcpy(sum, &value, kWordBytes);
  }
}

// The thread's buffer for packed rows, valid until its next call. Kept for later products.
inline std::byte* row_tiles_memory(size_t bytes) {
  static thread_local base::AlignedBytes memory;
  if (memory.size() < bytes) memory = base::AlignedBytes(std::max(bytes, 2 * memory.size()));
  return memory.data();
}

// One tile.
template <int Height>
struct RowTile {
  const std::byte* words;

  const std::byte* word(int index, int row) const {
    return words + static_cast<size_t>(index * Height + row) * kWordBytes;
  }
  template <typename T>
  T value(int index, int row) const {
    T value;
    std::memcpy(&value, word(index, row), sizeof(T));
    return value;
  }
};

// The smallest height of tiles into which more than kFewRows rows are split, if the largest is
// `most`.
constexpr int lowest_tile(int max) { return (max / kRowUnit + 1) / 2 * kRowUnit; }
static_assert(kTileRows % kRowUnit == 0 && kFewRows % kRowUnit == 0);
static_assert(lowest_tile(kTileRows) <= kFewRows + kRowUnit);

// Splits more than kFewRows rows into tiles of nearly equal height.
class Tiles {
 public:
  Tiles(int num_rows, int max)
      : num_rows_(num_rows),
        units_((num_rows + kRowUnit - 1) / kRowUnit),
        count_((units_ * kRowUnit + max - 1) / max) {}
  int num_rows() const { return num_rows_; }
  int count() const { return count_; }
  // The first row of tile i. The last tile may have one row more than exist.
  int first(int i) const { return units_ * i / count_ * kRowUnit; }
  int height(int i) const { return first(i + 1) - first(i); }
  int rows(int i) const { return std::min(height(i), num_rows_ - first(i)); }
  int padded_rows() const { return units_ * kRowUnit; }

 private:
  int num_rows_, units_, count_;
};

// Packed tiles of some rows of x, from `row` on, one after the other, in the thread's buffer.
struct RowTiles {
  const RowWords& words;
  const Tiles& tiles;
  std::byte* memory;

  RowTiles(const InputRows& x, const RowWords& row_words, int row, const Tiles& cut_into)
      : words(row_words),
        tiles(cut_into),
        memory(row_tiles_memory(words.tile_bytes(tiles.padded_rows()) + kBehindTile)) {
    for (int i = 0; i < tiles.count(); ++i) {
      pack_tile(x, words, row + tiles.first(i), tiles.rows(i), tiles.height(i), tile(i));
    }
  }
  std::byte* tile(int i) const { return memory + words.tile_bytes(tiles.first(i)); }
};
