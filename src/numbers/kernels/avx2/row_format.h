// SPDX-License-Identifier: Apache-2.0
//
// Operations of body/row_format.h and body/row_sum.h in AVX2, in addition to avx2/simd.h. Same
// names as avx512/row_format.h. Included inside a region.
#pragma once

// Number of 64-byte lines of a row in one step of the sum over rows.
inline constexpr int kSumLines = 2;

inline I32x16 sub(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
inline I32x16 bit_and(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
inline I32x16 bit_or(I32x16 a, I32x16 b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
template <int kBits>
inline I32x16 shift_left(I32x16 v) {
  return {_mm256_slli_epi32(v.lo, kBits), _mm256_slli_epi32(v.hi, kBits)};
}
template <int kBits>
inline I32x16 shift_right(I32x16 v) {
  return {_mm256_srli_epi32(v.lo, kBits), _mm256_srli_epi32(v.hi, kBits)};
}
// a < b ? yes : no, lane by lane.
inline I32x16 where_less(I32x16 a, I32x16 b, I32x16 yes, I32x16 no) {
  return {_mm256_blendv_epi8(no.lo, yes.lo, _mm256_cmpgt_epi32(b.lo, a.lo)),
          _mm256_blendv_epi8(no.hi, yes.hi, _mm256_cmpgt_epi32(b.hi, a.hi))};
}

// Whether a conversion instruction rounds all lanes as Bf16(float) does. AVX2 has none.
inline bool round_alike(F32x16) { return false; }
inline bool round_alike(F32x16, F32x16) { return false; }
inline void store_bf16(Bf16* p, F32x16 first, F32x16 second) {
  store_bf16(p, first);
  store_bf16(p + kPanelWidth, second);
}

// Interleaves the first and the second values of pairs to their order in memory.
inline F32x16 interleaved(__m256 even, __m256 odd) {
  const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
inline void interleave(F32x16* even, F32x16* odd) {
  const F32x16 e = *even, o = *odd;
  *even = interleaved(e.lo, o.lo);
  *odd = interleaved(e.hi, o.hi);
}

inline void store_bf16_pairs(Bf16* p, F32x16 even, F32x16 odd) {
  interleave(&even, &odd);
  store_bf16(p, even, odd);
}

// The lanes as 16-bit integers, in order. REQUIRES: they fit.
inline __m256i to_u16(I32x16 v) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(v.lo, v.hi), 0xd8);
}
inline __m128i to_u8(__m256i words) {
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
// Stores the lower 16 or 8 bits of each lane. REQUIRES: lanes have no other bits.
inline void store_u16(void* p, I32x16 v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), to_u16(v));
}
inline void store_u8(void* p, I32x16 v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), to_u8(to_u16(v)));
}

// Stores the bytes of four vectors, one after the other.
inline void store_u8(std::byte* p, const I32x16 (&v)[4]) {
  for (int i = 0; i < 4; ++i) store_u8(p + i * kPanelWidth, v[i]);
}

// The e2m1 codes of two vectors of steps (row_scales.h), two codes per byte.
inline __m128i e2m1_of_steps(I32x16 a, I32x16 b) {
  // Packing works within 128 bits: the order is fours of a.lo, a.hi, b.lo and b.hi.
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(a.lo, a.hi), _mm256_packs_epi32(b.lo, b.hi));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i steps = _mm256_permutevar8x32_epi32(packed, order);
  const __m256i magnitude =
      _mm256_min_epu8(_mm256_abs_epi8(steps), _mm256_set1_epi8(kMaxE2m1Steps));
  __m256i codes = _mm256_and_si256(_mm256_srli_epi16(steps, 4), _mm256_set1_epi8(8));
  for (const int bound : kE2m1Bounds) {
    const __m256i is_more =
        _mm256_cmpgt_epi8(magnitude, _mm256_set1_epi8(static_cast<char>(bound)));
    codes = _mm256_sub_epi8(codes, is_more);
  }
  const __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001));
  return to_u8(pairs);
}
// Stores the e2m1 codes of 64 numbers of steps.
inline void store_e2m1_of_steps(std::byte* p, const I32x16 (&steps)[4]) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), e2m1_of_steps(steps[0], steps[1]));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p) + 1, e2m1_of_steps(steps[2], steps[3]));
}

// Loads 16 finite e4m3, times 2^kPower. A subnormal is computed as least normal · 1.fraction −
// least normal, which is exact.
template <int kPower>
inline F32x16 load_scaled_e4m3(const void* p) {
  constexpr int kMin = 121 + kPower;  // the exponent of e4m3's least normal
  const __m128i codes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  const I32x16 lanes = {_mm256_cvtepu8_epi32(codes),
                        _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(codes, codes))};
  const I32x16 magnitude = shift_left<20>(bit_and(lanes, set1_i32(0x7f)));
  const I32x16 min = set1_i32(kMin << 23);
  const I32x16 small = bits_of(sub(from_bits(bit_or(min, magnitude)), from_bits(min)));
  const I32x16 large = add(magnitude, set1_i32((kMin - 1) << 23));
  const I32x16 sign = shift_left<24>(bit_and(lanes, set1_i32(0x80)));
  return from_bits(bit_or(sign, where_less(magnitude, set1_i32(1 << 23), small, large)));
}
inline F32x16 load_256ths_of_e4m3(const void* p) { return load_scaled_e4m3<-8>(p); }

// sums += weight · e4m3, for 64 codes.
inline constexpr bool kFp8SumsInPairs = false;
inline void add_e4m3_line(const std::byte* codes, F32x16 weight, F32x16* sums) {
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    sums[v] = fma(weight, load_scaled_e4m3<0>(codes + v * kPanelWidth), sums[v]);
  }
}

// The value of the e2m1 in the lower 4 bits of each lane.
inline __m256 value_of_e2m1(__m256i codes) {
  const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(codes, _mm256_set1_epi32(8)), 28);
  return _mm256_or_ps(_mm256_permutevar8x32_ps(magnitudes, codes), _mm256_castsi256_ps(sign));
}
inline F32x16 value_of_e2m1(I32x16 codes) {
  return {value_of_e2m1(codes.lo), value_of_e2m1(codes.hi)};
}
// Loads 16 e2m1 from 8 bytes.
inline F32x16 load_e2m1(const void* p) {
  const __m128i bytes = _mm_loadl_epi64(static_cast<const __m128i*>(p));
  const __m256i low = _mm256_cvtepu8_epi64(bytes);
  const __m256i high = _mm256_cvtepu8_epi64(_mm_srli_epi64(bytes, 32));
  return value_of_e2m1(I32x16{_mm256_or_si256(low, _mm256_slli_epi64(low, 28)),
                              _mm256_or_si256(high, _mm256_slli_epi64(high, 28))});
}

// An 8 × 8 transpose: interleaves pairs of vectors, then pairs of pairs, then halves.
inline void transpose(__m256 (&v)[8]) {
  __m256 a[8], b[8];
  for (int j = 0; j < 8; j += 2) {
    a[j] = _mm256_unpacklo_ps(v[j], v[j + 1]);
    a[j + 1] = _mm256_unpackhi_ps(v[j], v[j + 1]);
  }
  for (int j = 0; j < 8; j += 4) {
    b[j] = _mm256_shuffle_ps(a[j], a[j + 2], 0x44);
    b[j + 1] = _mm256_shuffle_ps(a[j], a[j + 2], 0xee);
    b[j + 2] = _mm256_shuffle_ps(a[j + 1], a[j + 3], 0x44);
    b[j + 3] = _mm256_shuffle_ps(a[j + 1], a[j + 3], 0xee);
  }
  for (int j = 0; j < 4; ++j) {
    v[j] = _mm256_permute2f128_ps(b[j], b[j + 4], 0x20);
    v[j + 4] = _mm256_permute2f128_ps(b[j], b[j + 4], 0x31);
  }
}

// Sums over e2m1, one line of codes at a time. A 32-bit lane has eight consecutive values, one for
// each of eight vectors of sums. So two lanes share a weight, and a shift yields the next value of
// each.
struct E2m1Lines {
  static constexpr int kLines = 1;
  static constexpr int kRowsAtOnce = 1;
  // Distributes the weights of 8 groups to the lanes of a line.
  static void spread(F32x16 of_groups, F32x16* weights) {
    *weights = {_mm256_permutevar8x32_ps(of_groups.lo, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
                _mm256_permutevar8x32_ps(of_groups.lo, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
  }
  static void add(const std::byte* line, F32x16 weights, F32x16* sums) {
    const auto* halves = reinterpret_cast<const __m256i*>(line);
    I32x16 codes = {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
#pragma GCC unroll 8
    for (int v = 0; v < 8; ++v) {
      sums[v] = fma(weights, value_of_e2m1(codes), sums[v]);
      codes = shift_right<4>(codes);
    }
  }
  // Reorders sums: before, lane i of v[j] has value 8i + j; after, value 16j + i.
  static void put_in_order(F32x16* v) {
    __m256 low[8], high[8];
    for (int j = 0; j < 8; ++j) {
      low[j] = v[j].lo;
      high[j] = v[j].hi;
    }
    transpose(low);
    transpose(high);
    for (int j = 0; j < 4; ++j) {
      v[j] = {low[2 * j], low[2 * j + 1]};
      v[j + 4] = {high[2 * j], high[2 * j + 1]};
    }
  }
};

// The maximum of each vector's halves; that of a first, then that of b.
inline __m256i max_over_lanes(__m256i a, __m256i b) {
  return _mm256_max_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                          _mm256_permute2x128_si256(a, b, 0x31));
}
// Lane i is the maximum over v[i]. Each step combines twice as many vectors in half as many lanes.
inline I32x16 max_of_each(const I32x16 (&v)[kPanelWidth]) {
  __m256i fours[4];
  for (int i = 0; i < 4; ++i) {
    __m256i of[4];
    for (int j = 0; j < 4; ++j) of[j] = _mm256_max_epi32(v[4 * i + j].lo, v[4 * i + j].hi);
    const __m256i a =
        _mm256_max_epi32(_mm256_unpacklo_epi32(of[0], of[1]), _mm256_unpackhi_epi32(of[0], of[1]));
    const __m256i b =
        _mm256_max_epi32(_mm256_unpacklo_epi32(of[2], of[3]), _mm256_unpackhi_epi32(of[2], of[3]));
    fours[i] = _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
  }
  return {max_over_lanes(fours[0], fours[1]), max_over_lanes(fours[2], fours[3])};
}
