// SPDX-License-Identifier: Apache-2.0
//
// Sixteen float32 lanes as one AVX-512 register. Included inside a region (avx512/begin.h).
// Same names as avx2/simd.h, so that the files of body/ serve both.
#pragma once

using F32x16 = __m512;

inline F32x16 zero() { return _mm512_setzero_ps(); }
inline F32x16 set1(float x) { return _mm512_set1_ps(x); }
inline F32x16 load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F32x16 v) { _mm512_storeu_ps(p, v); }
inline F32x16 add(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
inline F32x16 sub(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
inline F32x16 mul(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
inline F32x16 div(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
inline F32x16 max(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }
inline F32x16 min(F32x16 a, F32x16 b) { return _mm512_min_ps(a, b); }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }

// Adds the upper 8 lanes to the lower 8, then pairs in a fixed tree: the same order as avx2's.
inline float reduce_add(F32x16 v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline F32x16 load(const Bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

inline F32x16 load_halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// v · 2ⁿ for integers n.
inline F32x16 scale_by_power_of_two(F32x16 v, F32x16 n) { return _mm512_scalef_ps(v, n); }
inline F32x16 round_to_nearest(F32x16 v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// Rows of x by panels of w: 14 × 2 keeps 28 accumulators, 2 weights and 1 broadcast in 32
// registers. Up to kFewRows, up to kFewPanels are read together. Higher tiles have a multiple of
// kRowUnit.
inline constexpr int kTileRows = 14, kRowUnit = 2;
inline constexpr int kFewRows = 6, kFewPanels = 4;
inline constexpr int kFewestFloatChains = 1;  // see ForZen5 (body/one_tile.h)

inline F32x16 abs(F32x16 v) { return _mm512_abs_ps(v); }
inline float reduce_max(F32x16 v) { return _mm512_reduce_max_ps(v); }
inline bool any_equal(F32x16 a, F32x16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ) != 0; }
inline void store_bf16(Bf16* p, F32x16 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(v));
}

using I32x16 = __m512i;
inline I32x16 set1_i32(int32_t x) { return _mm512_set1_epi32(x); }
inline I32x16 add(I32x16 a, I32x16 b) { return _mm512_add_epi32(a, b); }
inline int32_t reduce_add(I32x16 v) { return _mm512_reduce_add_epi32(v); }
inline I32x16 max(I32x16 a, I32x16 b) { return _mm512_max_epi32(a, b); }
inline int32_t reduce_max(I32x16 v) { return _mm512_reduce_max_epi32(v); }
inline I32x16 bits_of(F32x16 v) { return _mm512_castps_si512(v); }
inline F32x16 from_bits(I32x16 v) { return _mm512_castsi512_ps(v); }
inline I32x16 to_i32(F32x16 v) { return _mm512_cvtps_epi32(v); }  // to nearest even
inline F32x16 to_f32(I32x16 v) { return _mm512_cvtepi32_ps(v); }
inline void store_i8(int8_t* p, I32x16 v) {  // REQUIRES: values fit
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}

// A cache line of weights: 64 bytes.
using Line = __m512i;
inline Line load_line(const void* p) { return _mm512_loadu_si512(p); }
inline void store_line(void* p, Line v) { _mm512_storeu_si512(p, v); }

// Converts 64 values to int8. REQUIRES: they fit.
inline Line to_i8(const F32x16 (&v)[4]) {
  const __m512i low = _mm512_packs_epi32(to_i32(v[0]), to_i32(v[1]));
  const __m512i high = _mm512_packs_epi32(to_i32(v[2]), to_i32(v[3]));
  // Packing works within 128 bits.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
}
// The sum of each four int8.
inline I32x16 sums_of_four(Line codes) {
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), codes);
}
// Stores the sums of each four or eight lanes, one after the other.
template <int Lanes>
inline void store_sums(int32_t* p, I32x16 v) {
  static_assert(Lanes == 4 || Lanes == 8);
  v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_BADC));
  v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
  if constexpr (Lanes == 8)
    v = _mm512_add_epi32(v, _mm512_shuffle_i32x4(v, v, _MM_SHUFFLE(2, 3, 0, 1)));
  const __m512i order = _mm512_setr_epi32(0, Lanes, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m128i sums = _mm512_castsi512_si128(_mm512_permutexvar_epi32(order, v));
  if constexpr (Lanes == 4) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), sums);
  } else {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), sums);
  }
}

// acc + x[0]·w[0] + … + x[3]·w[3] of each column; x: int8.
inline I32x16 multiply_four(const void* x, Line w, I32x16 acc) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(four));
}

// The same for weights up to 2 · kE2m1Offset.
inline I32x16 multiply_four_small(const void* x, Line w, I32x16 acc) {
  return multiply_four(x, w, acc);
}

// acc + the pair x[0]·w[0] + x[1]·w[1] of each column, in vdpbf16ps' own rounding; x: bf16.
inline F32x16 multiply_pair(const void* x, Line w, F32x16 acc) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof(pair));
  return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)w);
}
// acc + x · w of each column; x: float32.
inline F32x16 multiply_one(const void* x, Line w, F32x16 acc) {
  float value;
  std::memcpy(&value, x, sizeof(value));
  return fma(set1(value), _mm512_castsi512_ps(w), acc);
}
