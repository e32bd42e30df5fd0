// SPDX-License-Identifier: Apache-2.0
//
// Sixteen float32 lanes as two AVX2 registers. Included inside a region (avx2/begin.h). Same
// names as avx512/simd.h, so that the files of body/ serve both.
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

// Adds the upper 8 lanes to the lower 8, then pairs in a fixed tree: the same order as avx512's.
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

inline __m256 scale_by_power_of_two(__m256 v, __m256 n) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(v), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}
inline F32x16 load_halves(const std::byte* p) {
  const auto* eight = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(eight)), _mm256_cvtph_ps(_mm_loadu_si128(eight + 1))};
}

// v · 2ⁿ for integers n, if neither v nor the result is subnormal.
inline F32x16 scale_by_power_of_two(F32x16 v, F32x16 n) {
  return {scale_by_power_of_two(v.lo, n.lo), scale_by_power_of_two(v.hi, n.hi)};
}
inline F32x16 round_to_nearest(F32x16 v) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(v.lo, kMode), _mm256_round_ps(v.hi, kMode)};
}

inline F32x16 abs(F32x16 v) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  return {_mm256_and_ps(v.lo, mask), _mm256_and_ps(v.hi, mask)};
}
inline float reduce_max(F32x16 v) {
  const __m256 eight = _mm256_max_ps(v.lo, v.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline bool any_equal(F32x16 a, F32x16 b) {
  const __m256 low = _mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ);
  return _mm256_movemask_ps(_mm256_or_ps(low, _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ))) != 0;
}
inline void store_bf16(Bf16* p, F32x16 v) {
  float lanes[kPanelWidth];
  store(lanes, v);
  for (int i = 0; i < kPanelWidth; ++i) p[i] = Bf16(lanes[i]);
}

struct I32x16 {
  __m256i lo, hi;
};
inline I32x16 set1_i32(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I32x16 add(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline int32_t reduce_add(I32x16 v) {
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(v.lo, v.hi));
  int32_t sum = 0;
  for (const int32_t lane : lanes) sum += lane;
  return sum;
}
inline I32x16 max(I32x16 a, I32x16 b) {
  return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
inline int32_t reduce_max(I32x16 v) {
  const __m256i eight = _mm256_max_epi32(v.lo, v.hi);
  const __m128i four =
      _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
inline I32x16 bits_of(F32x16 v) { return {_mm256_castps_si256(v.lo), _mm256_castps_si256(v.hi)}; }
inline F32x16 from_bits(I32x16 v) { return {_mm256_castsi256_ps(v.lo), _mm256_castsi256_ps(v.hi)}; }
inline I32x16 to_i32(F32x16 v) { return {_mm256_cvtps_epi32(v.lo), _mm256_cvtps_epi32(v.hi)}; }
inline F32x16 to_f32(I32x16 v) { return {_mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi)}; }
inline void store_i8(int8_t* p, I32x16 v) {  // REQUIRES: values fit
  alignas(32) int32_t lanes[kPanelWidth];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), v.lo);
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes + 8), v.hi);
  for (int i = 0; i < kPanelWidth; ++i) p[i] = static_cast<int8_t>(lanes[i]);
}

// A cache line of weights: 64 bytes.
struct Line {
  __m256i lo, hi;
};
inline Line load_line(const void* p) {
  const auto* halves = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
inline void store_line(void* p, Line v) {
  auto* halves = static_cast<__m256i*>(p);
  _mm256_storeu_si256(halves, v.lo);
  _mm256_storeu_si256(halves + 1, v.hi);
}

inline __m256i to_i8(const F32x16& a, const F32x16& b) {
  const I32x16 first = to_i32(a), second = to_i32(b);
  const __m256i low = _mm256_packs_epi32(first.lo, first.hi);
  const __m256i high = _mm256_packs_epi32(second.lo, second.hi);
  // Packing works within 128 bits.
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                     _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
// Converts 64 values to int8. REQUIRES: they fit.
inline Line to_i8(const F32x16 (&v)[4]) { return {to_i8(v[0], v[1]), to_i8(v[2], v[3])}; }
// The sum of each four int8.
inline __m256i sums_of_four(__m256i codes) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), codes), _mm256_set1_epi16(1));
}
inline I32x16 sums_of_four(Line codes) { return {sums_of_four(codes.lo), sums_of_four(codes.hi)}; }
// Stores the sums of each four or eight lanes, one after the other.
template <int Lanes>
inline void store_sums(int32_t* p, I32x16 v) {
  static_assert(Lanes == 4 || Lanes == 8);
  // [lo 0 … 3, hi 0 … 3, lo 4 … 7, hi 4 … 7], pairs of which are added within 16 bytes.
  const __m256i pairs = _mm256_hadd_epi32(v.lo, v.hi);
  const __m256i fours = _mm256_hadd_epi32(pairs, pairs);  // lo, hi, lo, hi of each half
  const __m128i low = _mm256_castsi256_si128(fours), high = _mm256_extracti128_si256(fours, 1);
  if constexpr (Lanes == 4) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi32(low, high));
  } else {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_add_epi32(low, high));
  }
}

// acc + x[0]·w[0] + … + x[3]·w[3] of eight columns. Bytes become 16-bit integers first: the
// instruction that multiplies bytes saturates.
inline __m256i multiply_four(__m256i x_even, __m256i x_odd, __m256i w, __m256i acc) {
  const __m256i w_even = _mm256_and_si256(w, _mm256_set1_epi16(0x00ff));
  const __m256i w_odd = _mm256_srli_epi16(w, 8);
  acc = _mm256_add_epi32(acc, _mm256_madd_epi16(x_even, w_even));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(x_odd, w_odd));
}
inline I32x16 multiply_four(const void* x, Line w, I32x16 acc) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  const __m256i bytes = _mm256_set1_epi32(four);
  const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
  const __m256i odd = _mm256_srai_epi16(bytes, 8);
  return {multiply_four(even, odd, w.lo, acc.lo), multiply_four(even, odd, w.hi, acc.hi)};
}

// The same for weights up to 2 · kE2m1Offset, with which that instruction cannot saturate.
inline I32x16 multiply_four_small(const void* x, Line w, I32x16 acc) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  const __m256i bytes = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
  const auto eight = [&](__m256i weights, __m256i sum) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(weights, bytes), ones));
  };
  return {eight(w.lo, acc.lo), eight(w.hi, acc.hi)};
}

// Rows of x by panels of w: 3 × 2 keeps 12 accumulators, 2 weights and 1 broadcast in 16 registers.
// See avx512/simd.h.
inline constexpr int kTileRows = 3, kRowUnit = 1;
inline constexpr int kFewRows = 3, kFewPanels = 2;
inline constexpr int kFewestFloatChains = 2;  // a pair of bf16 is two additions

// The first and the second bf16 of each pair, as float32.
inline F32x16 evens(Line pairs) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs.lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(pairs.hi, 16))};
}
inline F32x16 odds(Line pairs) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_and_si256(pairs.lo, upper)),
          _mm256_castsi256_ps(_mm256_and_si256(pairs.hi, upper))};
}

// acc + the pair x[0]·w[0] + x[1]·w[1] of each column, k ascending; x: bf16.
inline F32x16 multiply_pair(const void* x, Line w, F32x16 acc) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof(pair));
  const __m256i pairs = _mm256_set1_epi32(pair);
  acc = fma(evens({pairs, pairs}), evens(w), acc);
  return fma(odds({pairs, pairs}), odds(w), acc);
}
// acc + x · w of each column; x: float32.
inline F32x16 multiply_one(const void* x, Line w, F32x16 acc) {
  float value;
  std::memcpy(&value, x, sizeof(value));
  return fma(set1(value), {_mm256_castsi256_ps(w.lo), _mm256_castsi256_ps(w.hi)}, acc);
}
