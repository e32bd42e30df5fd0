// SPDX-License-Identifier: Apache-2.0
//
// Operations of attention in AVX-512, in addition to avx512/simd.h. Same names as avx2/attention.h.
// Included inside a region.
#pragma once

// Rows by panels of positions (or of value elements) in registers: 6 × 4 keeps 24 accumulators,
// 4 loads and 1 broadcast in 32 registers.
inline constexpr int kStripRows = 6;
inline constexpr int kStripPanels = 4;

// v · 2ⁿ for integers n; zero if that underflows.
inline F32x16 scale_down(F32x16 v, F32x16 n) { return _mm512_scalef_ps(v, n); }

// The lanes of v whose bit is set; `other` in the other lanes.
inline F32x16 keep_lanes(F32x16 v, uint32_t bits, float other) {
  return _mm512_mask_blend_ps(static_cast<__mmask16>(bits), _mm512_set1_ps(other), v);
}

// Rounds two registers to 32 bf16, in order.
inline void store_weights(Bf16* p, F32x16 first, F32x16 second) {
  _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

inline void prefetch_lines(const std::byte* p, int num_lines) {
  for (int i = 0; i < num_lines; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(p) + 64 * i, _MM_HINT_T0);
  }
}

// Transposes 16 × 16 32-bit elements. Columns of `columns` are kPageTokens elements apart.
inline void transpose_block(const std::byte* rows, size_t row_bytes, uint32_t* columns) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(rows + i * row_bytes);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  // r[4 g + c]: rows 4 g ... 4 g + 3 of columns c, c + 4, c + 8, c + 12, one per 128-bit lane.
  for (int g = 0; g < 16; g += 4) {
    r[g] = _mm512_unpacklo_epi64(t[g], t[g + 2]);
    r[g + 1] = _mm512_unpackhi_epi64(t[g], t[g + 2]);
    r[g + 2] = _mm512_unpacklo_epi64(t[g + 1], t[g + 3]);
    r[g + 3] = _mm512_unpackhi_epi64(t[g + 1], t[g + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512i low_even = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88);
    const __m512i low_odd = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xdd);
    const __m512i high_even = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
    const __m512i high_odd = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xdd);
    t[c] = _mm512_shuffle_i32x4(low_even, high_even, 0x88);
    t[c + 8] = _mm512_shuffle_i32x4(low_even, high_even, 0xdd);
    t[c + 4] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
    t[c + 12] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd);
  }
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(columns + i * kPageTokens, t[i]);
}

// Widens 32 e4m3 to bf16: exponent and fraction are shifted into place, and the bias is raised by
// 127 − 7 = 120. The eight magnitudes below 2^-6 (subnormal in e4m3) come from a table.
inline void widen_block(const std::byte* fp8, Bf16* out) {
  alignas(64) static constexpr uint16_t kSmall[32] = {0x0000, 0x3b00, 0x3b80, 0x3bc0,
                                                      0x3c00, 0x3c20, 0x3c40, 0x3c60};
  const __m512i u = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(fp8)));
  const __m512i magnitude = _mm512_and_si512(u, _mm512_set1_epi16(0x7f));
  __m512i bits = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
  const __mmask32 small = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
  bits = _mm512_mask_permutexvar_epi16(bits, small, magnitude, _mm512_load_si512(kSmall));
  const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
  bits = _mm512_mask_mov_epi16(bits, nan, _mm512_set1_epi16(0x7fc0));
  const __m512i sign = _mm512_slli_epi16(_mm512_xor_si512(u, magnitude), 8);
  _mm512_storeu_si512(out, _mm512_or_si512(bits, sign));
}
inline constexpr int kWidenBlock = 32;
