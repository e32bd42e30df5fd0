// SPDX-License-Identifier: Apache-2.0
//
// kv_page.h: stores positions into pages, and converts pages to panels. Included inside a region,
// so that the compiler vectorises the plain loops with its instructions.
#pragma once

// ---- writing ----

// Elements are converted in chunks of this size, in a buffer, before they go into a panel.
inline constexpr int kStoreChunk = 256;

// Pairs of elements of one position are adjacent; pairs of the next dimensions are 64 pairs apart.
template <typename T, typename Pair>
inline void store_key_pairs(const float* x, int dim, int slot, std::byte* panel) {
  Pair* out = reinterpret_cast<Pair*>(panel) + slot;
  for (int begin = 0; begin < dim; begin += kStoreChunk) {
    T chunk[kStoreChunk] = {};
    const int count = std::min(kStoreChunk, dim - begin);
    for (int i = 0; i < count; ++i) chunk[i] = T(x[begin + i]);
    for (int i = 0; i < (count + 1) / 2; ++i) {
      Pair pair;
      std::memcpy(&pair, chunk + 2 * i, sizeof(pair));
      out[static_cast<size_t>(begin / 2 + i) * kPageTokens] = pair;
    }
  }
}

void store_key(Dtype dtype, const float* x, int dim, int slot, std::byte* panel) {
  if (dtype == Dtype::kBf16) return store_key_pairs<Bf16, uint32_t>(x, dim, slot, panel);
  if (dtype == Dtype::kF8E4M3) return store_key_pairs<F8E4M3, uint16_t>(x, dim, slot, panel);
  float* out = reinterpret_cast<float*>(panel) + slot;
  for (int d = 0; d < dim; ++d) out[static_cast<size_t>(d) * kPageTokens] = x[d];
}

// An even position clears its odd neighbour: attention multiplies both at once, and 0 · NaN is NaN.
template <typename T>
inline void store_value_halves(const float* x, int dim, int slot, std::byte* panel) {
  T* out = reinterpret_cast<T*>(panel) +
           static_cast<size_t>(slot / 2) * static_cast<size_t>(padded_value_dim(dim)) * 2;
  if (slot % 2 == 0) {
    for (int d = 0; d < dim; ++d) {
      out[2 * d] = T(x[d]);
      out[2 * d + 1] = T();
    }
  } else {
    for (int d = 0; d < dim; ++d) out[2 * d + 1] = T(x[d]);
  }
}

void store_value(Dtype dtype, const float* x, int dim, int slot, std::byte* panel) {
  if (dtype == Dtype::kBf16) return store_value_halves<Bf16>(x, dim, slot, panel);
  if (dtype == Dtype::kF8E4M3) return store_value_halves<F8E4M3>(x, dim, slot, panel);
  std::memcpy(panel + static_cast<size_t>(slot) * static_cast<size_t>(padded_value_dim(dim)) *
                          sizeof(float),
              x, static_cast<size_t>(dim) * sizeof(float));
}

void store_row(Dtype dtype, const float* x, int dim, std::byte* row) {
  if (dtype == Dtype::kBf16) {
    for (int i = 0; i < dim; ++i) reinterpret_cast<Bf16*>(row)[i] = Bf16(x[i]);
  } else if (dtype == Dtype::kF8E4M3) {
    for (int i = 0; i < dim; ++i) reinterpret_cast<F8E4M3*>(row)[i] = F8E4M3(x[i]);
  } else {
    std::memcpy(row, x, static_cast<size_t>(dim) * sizeof(float));
  }
}

// ---- reading ----

void widen_fp8(const std::byte* fp8, size_t count, Bf16* out) {
  size_t i = 0;
  for (; i + kWidenBlock <= count; i += kWidenBlock) widen_block(fp8 + i, out + i);
  for (; i < count; ++i) {
    F8E4M3 element;
    element.bits = static_cast<uint8_t>(fp8[i]);
    out[i] = Bf16(static_cast<float>(element));
  }
}

// A step of a key is 32 bits: one float32 or two bf16. memcpy, since rows may be only 2-byte
// aligned.
inline uint32_t step_of_row(const std::byte* row, int step) {
  uint32_t bits;
  std::memcpy(&bits, row + sizeof(bits) * static_cast<size_t>(step), sizeof(bits));
  return bits;
}

void pack_keys(const PageRows& page, std::byte* panel) {
  auto* columns = reinterpret_cast<uint32_t*>(panel);
  const size_t row_bytes = page.stride * dtype_bytes(page.dtype);
  const int width = page.dim / panel_step(page.dtype);  // whole steps
  const bool half = page.dim % panel_step(page.dtype) != 0;
  for (int p = 0; p < page.count; p += kPanelWidth) {
    const int count = std::min(kPanelWidth, page.count - p);
    const std::byte* rows = page.rows + static_cast<size_t>(p) * row_bytes;
    int c = 0;
    for (; count == kPanelWidth && c + kPanelWidth <= width; c += kPanelWidth) {
      transpose_block(rows + sizeof(uint32_t) * static_cast<size_t>(c), row_bytes,
                      columns + c * kPageTokens + p);
    }
    for (; c < width + half; ++c) {
      const uint32_t kept = c < width ? ~uint32_t{0} : 0xffffu;  // little endian: the first of two
      for (int i = 0; i < count; ++i) {
        columns[c * kPageTokens + p + i] =
            step_of_row(rows + static_cast<size_t>(i) * row_bytes, c) & kept;
      }
    }
  }
}

void pack_values(const PageRows& page, std::byte* panel) {
  const size_t padded = static_cast<size_t>(padded_value_dim(page.dim));
  if (page.dtype == Dtype::kF32) {
    const auto* rows = reinterpret_cast<const float*>(page.rows);
    for (int p = 0; p < page.count; ++p) {
      std::memcpy(panel + p * padded * sizeof(float), rows + p * page.stride,
                  static_cast<size_t>(page.dim) * sizeof(float));
    }
    return;
  }
  static constexpr uint16_t kNothing[kStoreChunk] = {};
  const auto* rows = reinterpret_cast<const uint16_t*>(page.rows);
  for (int p = 0; p < page.count; p += 2) {
    for (int begin = 0; begin < page.dim; begin += kStoreChunk) {
      const uint16_t* even = rows + p * page.stride + begin;
      const uint16_t* odd = p + 1 < page.count ? even + page.stride : kNothing;
      uint16_t* out = reinterpret_cast<uint16_t*>(panel) + p * padded + 2 * begin;
      for (int d = 0; d < std::min(kStoreChunk, page.dim - begin); ++d) {
        out[2 * d] = even[d];
        out[2 * d + 1] = odd[d];
      }
    }
  }
}
