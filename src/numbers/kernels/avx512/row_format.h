// SPDX-License-Identifier: Apache-2.0
//
// Operations of body/row_format.h and body/row_sum.h in AVX-512, in addition to avx512/simd.h. Same
// names as avx2/row_format.h. Included inside a region.
#pragma once

// Number of 64-byte lines of a row in one step of the sum over rows.
inline constexpr int kSumLines = 4;

inline I32x16 sub(I32x16 a, I32x16 b) { return _mm512_sub_epi32(a, b); }
inline I32x16 bit_and(I32x16 a, I32x16 b) { return _mm512_and_si512(a, b); }
inline I32x16 bit_or(I32x16 a, I32x16 b) { return _mm512_or_si512(a, b); }
template <int kBits>
inline I32x16 shift_left(I32x16 v) {
  return _mm512_slli_epi32(v, kBits);
}
template <int kBits>
inline I32x16 shift_right(I32x16 v) {
  return _mm512_srli_epi32(v, kBits);
}
// a < b ? yes : no, lane by lane.
inline I32x16 where_less(I32x16 a, I32x16 b, I32x16 yes, I32x16 no) {
  return _mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(a, b), no, yes);
}

// Lanes that the bf16 conversion instruction rounds differently from Bf16(float): it flushes
// subnormals to zero, and keeps more bits of a NaN.
inline __mmask16 rounds_otherwise(F32x16 v) {
  constexpr int kNanOrSubnormal = 0x01 | 0x20 | 0x80;
  return _mm512_fpclass_ps_mask(v, kNanOrSubnormal);
}
inline bool round_alike(F32x16 v) { return rounds_otherwise(v) == 0; }
inline bool round_alike(F32x16 a, F32x16 b) {
  return _kortestz_mask16_u8(rounds_otherwise(a), rounds_otherwise(b)) != 0;
}
inline void store_bf16(Bf16* p, F32x16 first, F32x16 second) {
  _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

// The first and the second bf16 of each pair, as float32; and interleave puts them back in order.
inline F32x16 evens(Line pairs) { return from_bits(_mm512_slli_epi32(pairs, 16)); }
inline F32x16 odds(Line pairs) {
  return from_bits(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline void interleave(F32x16* even, F32x16* odd) {
  const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i second =
      _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  const F32x16 e = *even, o = *odd;
  *even = _mm512_permutex2var_ps(e, first, o);
  *odd = _mm512_permutex2var_ps(e, second, o);
}
inline void store_bf16_pairs(Bf16* p, F32x16 even, F32x16 odd) {
  alignas(64) static constexpr auto kOrder = [] {
    std::array<uint16_t, 32> order{};
    for (int i = 0; i < 32; ++i) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
    return order;
  }();
  const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
  _mm512_storeu_si512(p, _mm512_permutexvar_epi16(_mm512_load_si512(kOrder.data()), rounded));
}

// Collects every kStride-th byte of two vectors, from byte kFirst on. (The instructions that store
// the low bytes of wider lanes are far slower.)
template <int kStride, int kFirst = 0>
inline __m512i bytes_of(__m512i first, __m512i second) {
  alignas(64) static constexpr auto kOrder = [] {
    std::array<uint8_t, 64> order{};
    for (int i = 0; i < 128 / kStride; ++i) order[i] = static_cast<uint8_t>(i * kStride + kFirst);
    return order;
  }();
  return _mm512_permutex2var_epi8(first, _mm512_load_si512(kOrder.data()), second);
}

// Stores the lower 16 or 8 bits of each lane. REQUIRES: lanes have no other bits.
inline void store_u16(void* p, I32x16 v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v));
}
inline void store_u8(void* p, I32x16 v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_castsi512_si128(bytes_of<4>(v, v)));
}

// The bytes of four vectors. Packing works within 128 bits: each 128-bit lane of the result has
// four bytes of each vector.
inline __m512i to_bytes(const I32x16 (&v)[4]) {
  return _mm512_packus_epi16(_mm512_packus_epi32(v[0], v[1]), _mm512_packus_epi32(v[2], v[3]));
}
inline void store_u8(void* p, const I32x16 (&v)[4]) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, to_bytes(v)));
}

// Stores the e2m1 codes of 64 numbers of steps (row_scales.h).
inline void store_e2m1_of_steps(std::byte* p, const I32x16 (&steps)[4]) {
  alignas(64) static constexpr auto kCodes = [] {
    std::array<uint8_t, kMaxE2m1Steps + 1> codes{};
    for (int i = 0; i <= kMaxE2m1Steps; ++i) codes[i] = e2m1_of_steps(i);
    return codes;
  }();
  const __m512i bytes = _mm512_packs_epi16(_mm512_packs_epi32(steps[0], steps[1]),
                                           _mm512_packs_epi32(steps[2], steps[3]));
  const __m512i magnitude =
      _mm512_min_epu8(_mm512_abs_epi8(bytes), _mm512_set1_epi8(kMaxE2m1Steps));
  const __m512i code = _mm512_permutex2var_epi8(_mm512_load_si512(kCodes.data()), magnitude,
                                                _mm512_load_si512(kCodes.data() + 64));
  constexpr int kOrAnd = 0xf8;  // of three: first | (second & third)
  const __m512i codes =
      _mm512_ternarylogic_epi32(code, _mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(8), kOrAnd);
  const __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001));
  // Packing works within 128 bits: each lane has four codes of each vector.
  const __m256i order = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_permutexvar_epi16(order, _mm512_cvtepi16_epi8(pairs)));
}

// Loads 16 finite e4m3, divided by 256: their bits, shifted, are half floats, whose exponent bias
// is 8 larger.
inline F32x16 load_256ths_of_e4m3(const void* p) {
  const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i halves =
      _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(static_cast<short>(0xbf80)));
  return _mm512_cvtph_ps(halves);
}

// sums += weight · e4m3, for 64 codes, widened to two lines of bf16 pairs. Sums of the pairs' first
// values and of their second values are separate.
inline constexpr bool kFp8SumsInPairs = true;
inline void add_e4m3_line(const std::byte* codes, F32x16 weight, F32x16* sums) {
  Line lines[2];
  expand_e4m3(load_line(codes), lines);
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    sums[2 * v] = fma(weight, evens(lines[v]), sums[2 * v]);
    sums[2 * v + 1] = fma(weight, odds(lines[v]), sums[2 * v + 1]);
  }
}

// The value of the e2m1 in the lower 4 bits of each lane.
inline F32x16 value_of_e2m1(I32x16 codes) {
  const F32x16 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                       -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  return _mm512_permutexvar_ps(codes, values);
}
// Loads 16 e2m1 from 8 bytes.
inline F32x16 load_e2m1(const void* p) {
  const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  return value_of_e2m1(_mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28)));
}

// From each 128-bit quarter: the first (second) two lanes of a, then those of b.
inline F32x16 first_twos(F32x16 a, F32x16 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
inline F32x16 second_twos(F32x16 a, F32x16 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

// Sums over e2m1, one line of codes at a time. A 32-bit lane has eight consecutive values, one for
// each of eight vectors of sums. So two lanes share a weight, and a shift yields the next value of
// each.
struct E2m1Lines {
  static constexpr int kLines = 2;  // lines whose weights are in one vector
  static constexpr int kRowsAtOnce = 32;
  // Distributes the weights of 16 groups to the lanes of two lines.
  static void spread(F32x16 of_groups, F32x16* weights) {
    const __m512i first = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    weights[0] = _mm512_permutexvar_ps(first, of_groups);
    weights[1] = _mm512_permutexvar_ps(second, of_groups);
  }
  // Each lookup finds two values per lane, by the lower five bits of each 16-bit half.
  static void add(const std::byte* line, F32x16 weights, F32x16* sums) {
    const __m512i values = _mm512_load_si512(kE2m1Values.data());
    __m512i codes = _mm512_loadu_si512(line);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const Line pairs = _mm512_permutexvar_epi16(codes, values);
      sums[v] = fma(weights, evens(pairs), sums[v]);
      sums[4 + v] = fma(weights, odds(pairs), sums[4 + v]);
      codes = _mm512_srli_epi16(codes, 4);
    }
  }
  // Reorders sums: before, lane i of v[j] has value 8i + j; after, value 16j + i. First moves
  // values to the right quarter, then transposes 4 × 4 values in the quarters.
  static void put_in_order(F32x16* v) {
    const __m512i lower = _mm512_setr_epi32(0, 2, 4, 6, 16, 18, 20, 22, 1, 3, 5, 7, 17, 19, 21, 23);
    const __m512i upper = _mm512_add_epi32(lower, _mm512_set1_epi32(8));
    F32x16 quarters[8];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      quarters[j] = _mm512_permutex2var_ps(v[j], lower, v[4 + j]);
      quarters[4 + j] = _mm512_permutex2var_ps(v[j], upper, v[4 + j]);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 8; half += 4) {
      const F32x16* of = quarters + half;
      const F32x16 a = _mm512_unpacklo_ps(of[0], of[1]), b = _mm512_unpacklo_ps(of[2], of[3]);
      const F32x16 c = _mm512_unpackhi_ps(of[0], of[1]), d = _mm512_unpackhi_ps(of[2], of[3]);
      v[half] = first_twos(a, b);
      v[half + 1] = second_twos(a, b);
      v[half + 2] = first_twos(c, d);
      v[half + 3] = second_twos(c, d);
    }
  }
  // As put_in_order, and stores the sums rounded to bf16: interleaves words to pairs, fours,
  // eights. REQUIRES: round_alike(v[0]) … round_alike(v[7])
  static void store_rounded(Bf16* p, const F32x16* v) {
    __m512i words[4], pairs[4], fours[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) words[j] = (__m512i)_mm512_cvtne2ps_pbh(v[4 + j], v[j]);
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      pairs[2 * j] = _mm512_unpacklo_epi16(words[2 * j], words[2 * j + 1]);
      pairs[2 * j + 1] = _mm512_unpackhi_epi16(words[2 * j], words[2 * j + 1]);
    }
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      fours[2 * j] = _mm512_unpacklo_epi32(pairs[j], pairs[2 + j]);
      fours[2 * j + 1] = _mm512_unpackhi_epi32(pairs[j], pairs[2 + j]);
    }
    const __m512i first = _mm512_setr_epi64(0, 4, 1, 5, 8, 12, 9, 13);
    const __m512i second = _mm512_add_epi64(first, _mm512_set1_epi64(2));
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const __m512i* of = fours + 2 * j;
      _mm512_storeu_si512(p + j * 32, _mm512_permutex2var_epi64(of[0], first, of[1]));
      _mm512_storeu_si512(p + 64 + j * 32, _mm512_permutex2var_epi64(of[0], second, of[1]));
    }
  }
};

// For each of two vectors: the maximum of its first and third, and of its second and fourth
// quarters.
inline __m512i max_over_lanes(__m512i a, __m512i b) {
  return _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}
// Lane i is the maximum over v[i]. Each step combines twice as many vectors in half as many lanes.
inline I32x16 max_of_each(const I32x16 (&v)[kPanelWidth]) {
  __m512i fours[4];
  for (int i = 0; i < 4; ++i) {
    const __m512i* of = v + 4 * i;
    const __m512i a =
        _mm512_max_epi32(_mm512_unpacklo_epi32(of[0], of[1]), _mm512_unpackhi_epi32(of[0], of[1]));
    const __m512i b =
        _mm512_max_epi32(_mm512_unpacklo_epi32(of[2], of[3]), _mm512_unpackhi_epi32(of[2], of[3]));
    fours[i] = _mm512_max_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  }
  return max_over_lanes(max_over_lanes(fours[0], fours[1]), max_over_lanes(fours[2], fours[3]));
}

// ---- bf16 rows to codes, 32 values of 16 bits in a vector ----
//
// Specialisations of the templates of body/row_format.h.

inline __m512i magnitudes(__m512i bf16) {
  return _mm512_and_si512(bf16, _mm512_set1_epi16(0x7fff));
}
// The larger of each pair of bf16 magnitudes, as float32 bits.
inline I32x16 larger_of_pairs(__m512i bf16) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm512_max_epi32(_mm512_and_si512(bf16, upper), _mm512_slli_epi32(bf16, 16));
}

template <int kGroup>
inline I32x16 largest_of_groups(const Bf16* x, int count);

template <>
inline I32x16 largest_of_groups<kFp8RowGroup>(const Bf16* x, int count) {
  I32x16 largest[kPanelWidth];
  for (int group = 0; group < kPanelWidth; ++group) {
    __m512i of_group = _mm512_setzero_si512();
    for (int i = 0; i < kFp8RowGroup && group < count; i += 32) {
      const __m512i bf16 = _mm512_loadu_si512(x + group * kFp8RowGroup + i);
      of_group = _mm512_max_epu16(of_group, magnitudes(bf16));
    }
    largest[group] = larger_of_pairs(of_group);
  }
  return max_of_each(largest);
}

// A vector has two groups. Each step combines twice as many vectors in half as many lanes.
template <>
inline I32x16 largest_of_groups<kNvfp4RowGroup>(const Bf16* x, int count) {
  __m512i twos[8], fours[4], eights[2], sixteens[2];
  for (int i = 0; i < 8; ++i) {
    const int left = count - 2 * i;
    const __mmask32 there = left > 1 ? 0xffffffffu : left == 1 ? 0xffffu : 0u;
    twos[i] = magnitudes(_mm512_maskz_loadu_epi16(there, x + i * 32));
  }
  for (int i = 0; i < 4; ++i) {
    fours[i] = _mm512_max_epu16(_mm512_unpacklo_epi64(twos[2 * i], twos[2 * i + 1]),
                                _mm512_unpackhi_epi64(twos[2 * i], twos[2 * i + 1]));
  }
  for (int i = 0; i < 2; ++i) {
    const __m512 a = from_bits(fours[2 * i]), b = from_bits(fours[2 * i + 1]);
    eights[i] = _mm512_max_epu16(bits_of(_mm512_shuffle_ps(a, b, 0x88)),
                                 bits_of(_mm512_shuffle_ps(a, b, 0xdd)));
    sixteens[i] = larger_of_pairs(eights[i]);
  }
  // By quarters: groups 0, 2, 4, 6; 1, 3, 5, 7; and so on from 8.
  const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  return _mm512_permutexvar_epi32(order, max_over_lanes(sixteens[0], sixteens[1]));
}

inline I32x16 to_e4m3(F32x16 v);

// to_code is exact in bf16. So a code is the sum of two terms: the code of the fractions' product,
// from a table (e4m3_of_products.h), and the sum of exponents in steps of 8. This holds for normal
// codes only. If one of 64 values is zero or would have a subnormal code, all 64 are rounded by
// to_e4m3.
inline void encode_e4m3(const Bf16* x, float to_code, std::byte* out) {
  const uint32_t factor = std::bit_cast<uint32_t>(to_code);
  const uint32_t fraction = factor >> 16 & 0x7f, exponent = factor >> 23;
  const E4m3OfProducts& of_products = kE4m3OfProducts[fraction];
  // Exponent biases: 127 in bf16, 7 in e4m3.
  const __m512i shift = _mm512_set1_epi8(static_cast<char>((exponent + 7 - 2 * 127) * 8));
  const __m512i lower = _mm512_add_epi8(_mm512_load_si512(of_products.codes), shift);
  const __m512i upper = _mm512_add_epi8(_mm512_load_si512(of_products.codes + 64), shift);
  const uint32_t min_normal = ((2 * 127 - 7 - exponent) << 7) + of_products.min;
  const __m512i min = _mm512_set1_epi16(static_cast<short>(min_normal));
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  constexpr int kOrAnd = 0xf8;  // of three: first | (second & third)
  for (int i = 0; i < kFp8RowGroup; i += 64) {
    const __m512i a = _mm512_loadu_si512(x + i), b = _mm512_loadu_si512(x + i + 32);
    const __mmask32 normal_a = _mm512_cmpge_epu16_mask(magnitudes(a), min);
    const __mmask32 normal_b = _mm512_cmpge_epu16_mask(magnitudes(b), min);
    if ((normal_a & normal_b) != 0xffffffffu) {
      for (int j = i; j < i + 64; j += kPanelWidth) {
        store_u8(out + j, to_e4m3(mul(load(x + j), set1(to_code))));
      }
      continue;
    }
    // The lookup ignores the upper bit of an index, which is the exponent's lowest bit.
    const __m512i code = _mm512_permutex2var_epi8(lower, bytes_of<2>(a, b), upper);
    const __m512i exponents = bytes_of<2>(_mm512_srli_epi16(a, 4), _mm512_srli_epi16(b, 4));
    const __m512i steps = _mm512_and_si512(exponents, _mm512_set1_epi8(static_cast<char>(0xf8)));
    const __m512i signs = bytes_of<2, 1>(a, b);
    _mm512_storeu_si512(
        out + i, _mm512_ternarylogic_epi32(_mm512_add_epi8(code, steps), signs, sign, kOrAnd));
  }
}
