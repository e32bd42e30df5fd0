// SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__)
#include "kernels/avx512/begin.h"

namespace {

// A 16 × 16 transpose of 4-byte words: pairs of rows, then fours, then the 128-bit quarters.
inline void transpose(const std::byte* rows, size_t row_bytes, std::byte* out) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(rows + i * row_bytes);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  // a[4g + c] now holds rows 4g … 4g + 3 of columns c, c + 4, c + 8, c + 12, one per quarter.
  for (int c = 0; c < 4; ++c) {
    const __m512i upper_even = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x88);
    const __m512i upper_odd = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xdd);
    const __m512i lower_even = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x88);
    const __m512i lower_odd = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xdd);
    std::byte* column = out + 64 * c;
    _mm512_store_si512(column, _mm512_shuffle_i32x4(upper_even, lower_even, 0x88));
    _mm512_store_si512(column + 256, _mm512_shuffle_i32x4(upper_odd, lower_odd, 0x88));
    _mm512_store_si512(column + 512, _mm512_shuffle_i32x4(upper_even, lower_even, 0xdd));
    _mm512_store_si512(column + 768, _mm512_shuffle_i32x4(upper_odd, lower_odd, 0xdd));
  }
}

inline void fetch(const std::byte* bytes) {
  for (int i = 0; i < 16; ++i)
    _mm_prefetch(reinterpret_cast<const char*>(bytes + i * 64), _MM_HINT_T0);
}

}  // namespace

void interleave_rows(const std::byte* rows, size_t row_bytes, int num_words, std::byte* out,
                     const std::byte* next) {
  int j = 0;
  for (; j + 16 <= num_words; j += 16) {
    if (next != nullptr) fetch(next + j * 64);
    transpose(rows + j * 4, row_bytes, out + j * 64);
  }
  ref::interleave_rows(rows + j * 4, row_bytes, num_words - j, out + j * 64, nullptr);
}

//
#include "kernels/avx512/end.h"
#endif
