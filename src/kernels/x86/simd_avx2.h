// SPDX-License-Identifier: Apache-2.0
//
// Sixteen float32 lanes as two AVX2 registers. Included inside the region that avx2.cc opens; the
// same names as simd_avx512.h, so that body.h is written once.
#pragma once

struct F32x16 {
  __m256 lo, hi;
};

inline F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F32x16 v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
inline F32x16 add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline F32x16 sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline F32x16 mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline F32x16 div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

// The upper 8 lanes onto the lower 8, then pairs in a fixed tree: the same order as avx512's.
inline float reduce_add(F32x16 v) {
  const __m256 eight = _mm256_add_ps(v.lo, v.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline __m256 widen(__m128i bf16) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}
inline F32x16 load(const Bf16* p) {
  const auto* halves = reinterpret_cast<const __m128i*>(p);
  return {widen(_mm_loadu_si128(halves)), widen(_mm_loadu_si128(halves + 1))};
}

// Sixteen pairs of bf16 (32 values) taken apart: the first and the second of each pair.
inline F32x16 load_even(const Bf16* p) {
  const auto* q = reinterpret_cast<const __m256i*>(p);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(q), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(q + 1), 16))};
}
inline F32x16 load_odd(const Bf16* p) {
  const auto* q = reinterpret_cast<const __m256i*>(p);
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(q), upper)),
          _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(q + 1), upper))};
}

inline __m256 scale_by_power_of_two(__m256 v, __m256 n) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(v), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}
// v · 2ⁿ for whole n, where neither v nor the result is subnormal.
inline F32x16 scale_by_power_of_two(F32x16 v, F32x16 n) {
  return {scale_by_power_of_two(v.lo, n.lo), scale_by_power_of_two(v.hi, n.hi)};
}
inline F32x16 round_to_nearest(F32x16 v) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(v.lo, kMode), _mm256_round_ps(v.hi, kMode)};
}

// Rows of x by panels of w: 4 × 1 keeps 8 accumulators, 2 weights and 1 broadcast in 16 registers.
inline constexpr int kTileRows = 4;
inline constexpr int kTilePanels = 1;

// acc + the pair x[0]·w[0] + x[1]·w[1] of each column, k ascending.
inline F32x16 multiply_pair(const Bf16* x, const Bf16* w, F32x16 acc) {
  acc = fma(set1(static_cast<float>(x[0])), load_even(w), acc);
  return fma(set1(static_cast<float>(x[1])), load_odd(w), acc);
}
