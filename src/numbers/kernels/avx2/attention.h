// SPDX-License-Identifier: Apache-2.0
//
// Operations of attention in AVX2, in addition to avx2/simd.h. Same names as avx512/attention.h.
// Included inside a region.
#pragma once

// Rows by panels in registers: 4 × 1 keeps 8 accumulators, 2 loads and 1 broadcast in 16.
inline constexpr int kStripRows = 4;
inline constexpr int kStripPanels = 1;

// v · 2ⁿ for integers n; zero if n < −126. v is about 1.
inline __m256 scale_down(__m256 v, __m256 n) {
  const __m256 min = _mm256_set1_ps(-126.0f);
  const __m256 scaled = scale_by_power_of_two(v, _mm256_max_ps(min, n));
  return _mm256_and_ps(scaled, _mm256_cmp_ps(n, min, _CMP_NLT_UQ));
}
inline F32x16 scale_down(F32x16 v, F32x16 n) {
  return {scale_down(v.lo, n.lo), scale_down(v.hi, n.hi)};
}

// The lanes of v whose bit is set; `other` in the other lanes.
inline __m256 keep_lanes(__m256 v, uint32_t bits, float other) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
  const __m256i keep = _mm256_cmpeq_epi32(set, lane);
  return _mm256_blendv_ps(_mm256_set1_ps(other), v, _mm256_castsi256_ps(keep));
}
inline F32x16 keep_lanes(F32x16 v, uint32_t bits, float other) {
  return {keep_lanes(v.lo, bits, other), keep_lanes(v.hi, bits >> 8, other)};
}

// Rounds two registers to 32 bf16, in order.
inline void store_weights(Bf16* p, F32x16 first, F32x16 second) {
  float values[2 * kPanelWidth];
  store(values, first);
  store(values + kPanelWidth, second);
  for (int i = 0; i < 2 * kPanelWidth; ++i) p[i] = Bf16(values[i]);
}

inline void prefetch_lines(const std::byte* p, int num_lines) {
  for (int i = 0; i < num_lines; ++i) {
    _mm_prefetch(reinterpret_cast<const char*>(p) + 64 * i, _MM_HINT_T0);
  }
}

// Transposes 16 × 16 32-bit elements. Columns of `columns` are kPageTokens elements apart.
inline void transpose_block(const std::byte* rows, size_t row_bytes, uint32_t* columns) {
  for (int c = 0; c < 16; ++c) {
    for (int r = 0; r < 16; ++r) {
      std::memcpy(columns + c * kPageTokens + r, rows + r * row_bytes + sizeof(uint32_t) * c,
                  sizeof(uint32_t));
    }
  }
}

inline constexpr int kWidenBlock = 16;
inline void widen_block(const std::byte* fp8, Bf16* out) {
  for (int i = 0; i < kWidenBlock; ++i) {
    F8E4M3 element;
    element.bits = static_cast<uint8_t>(fp8[i]);
    out[i] = Bf16(static_cast<float>(element));
  }
}
