// SPDX-License-Identifier: Apache-2.0
//
// What row_format_body.h needs beside simd_avx512.h. The same names as row_format_avx2.h. Included
// inside a region.
#pragma once

// Lines of 64 bytes of a row that the sum over rows takes at once.
inline constexpr int kSumLines = 4;

inline I32x16 bits_of(F32x16 v) { return _mm512_castps_si512(v); }
inline F32x16 from_bits(I32x16 v) { return _mm512_castsi512_ps(v); }
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
inline I32x16 max(I32x16 a, I32x16 b) { return _mm512_max_epi32(a, b); }
inline I32x16 min(I32x16 a, I32x16 b) { return _mm512_min_epi32(a, b); }
inline int32_t reduce_max(I32x16 v) { return _mm512_reduce_max_epi32(v); }
// a < b ? yes : no, lane by lane.
inline I32x16 where_less(I32x16 a, I32x16 b, I32x16 yes, I32x16 no) {
  return _mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(a, b), no, yes);
}

// Whether the instruction for it rounds these as Bf16(float): it makes subnormals zero, and keeps
// more of a NaN.
inline bool round_alike(F32x16 v) {
  constexpr int kNanOrSubnormal = 0x01 | 0x20 | 0x80;
  return _mm512_fpclass_ps_mask(v, kNanOrSubnormal) == 0;
}
inline void store_bf16(Bf16* p, F32x16 first, F32x16 second) {
  _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

// The first and the second of each pair of bf16, and from those to the order in memory.
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

// The lower 16, 8 or 4 bits of each lane; of fours the even lane's come first. Lanes hold no more.
inline void store_u16(void* p, I32x16 v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v));
}
inline void store_u8(void* p, I32x16 v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}
inline void store_u4(void* p, I32x16 v) {
  const __m512i pairs = _mm512_or_si512(v, _mm512_srli_epi64(v, 28));
  _mm_storel_epi64(static_cast<__m128i*>(p), _mm512_cvtepi64_epi8(pairs));
}

// The same of four vectors, one behind the other. Packing goes by 128 bits: a lane of the packed
// bytes holds four of each vector.
inline __m512i to_bytes(const I32x16 (&v)[4]) {
  return _mm512_packus_epi16(_mm512_packus_epi32(v[0], v[1]), _mm512_packus_epi32(v[2], v[3]));
}
inline void store_u8(void* p, const I32x16 (&v)[4]) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, to_bytes(v)));
}
inline void store_u4(void* p, const I32x16 (&v)[4]) {
  const __m256i order = _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i pairs = _mm512_maddubs_epi16(to_bytes(v), _mm512_set1_epi16(0x1001));
  _mm256_storeu_si256(static_cast<__m256i*>(p),
                      _mm256_permutexvar_epi16(order, _mm512_cvtepi16_epi8(pairs)));
}

// 16 finite e4m3, divided by 256: as half floats, whose exponent's bias is 8 more.
inline F32x16 load_256ths_of_e4m3(const void* p) {
  const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i halves =
      _mm256_and_si256(_mm256_slli_epi16(codes, 7), _mm256_set1_epi16(static_cast<short>(0xbf80)));
  return _mm512_cvtph_ps(halves);
}

// The e2m1 in the lower 4 bits of each lane.
inline F32x16 value_of_e2m1(I32x16 codes) {
  const F32x16 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f,
                                       -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
  return _mm512_permutexvar_ps(codes, values);
}
// 16 e2m1 of 8 bytes.
inline F32x16 load_e2m1(const void* p) {
  const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  return value_of_e2m1(_mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28)));
}

inline I32x16 load_words(const void* p) { return _mm512_loadu_si512(p); }
// Lanes 0, 0, 1, 1, … 7, 7.
inline F32x16 lower_twice(F32x16 v) {
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                               v);
}

// From value 8i + j in lane i of v[j] to value 16j + i there. Pairs of vectors, pairs of pairs,
// then the 128-bit quarters of four.
inline void put_words_in_order(F32x16* v) {
  F32x16 a[8], b[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; j += 2) {
    a[j] = _mm512_unpacklo_ps(v[j], v[j + 1]);
    a[j + 1] = _mm512_unpackhi_ps(v[j], v[j + 1]);
  }
  const auto low = [](F32x16 x, F32x16 y) {
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
  };
  const auto high = [](F32x16 x, F32x16 y) {
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
  };
#pragma GCC unroll 8
  for (int j = 0; j < 8; j += 4) {  // b[j + c]: values 4j … 4j + 3 of lanes c, c + 4, c + 8, c + 12
    b[j] = low(a[j], a[j + 2]);
    b[j + 1] = high(a[j], a[j + 2]);
    b[j + 2] = low(a[j + 1], a[j + 3]);
    b[j + 3] = high(a[j + 1], a[j + 3]);
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {  // of a vector: its lanes 0 and 1 mod 4, or 2 and 3
    const F32x16 even_low = _mm512_shuffle_f32x4(b[2 * half], b[4 + 2 * half], 0x44);
    const F32x16 even_high = _mm512_shuffle_f32x4(b[2 * half], b[4 + 2 * half], 0xee);
    const F32x16 odd_low = _mm512_shuffle_f32x4(b[2 * half + 1], b[5 + 2 * half], 0x44);
    const F32x16 odd_high = _mm512_shuffle_f32x4(b[2 * half + 1], b[5 + 2 * half], 0xee);
    v[half] = _mm512_shuffle_f32x4(even_low, odd_low, 0x88);
    v[2 + half] = _mm512_shuffle_f32x4(even_low, odd_low, 0xdd);
    v[4 + half] = _mm512_shuffle_f32x4(even_high, odd_high, 0x88);
    v[6 + half] = _mm512_shuffle_f32x4(even_high, odd_high, 0xdd);
  }
}

// Of two vectors: the larger of each one's first and third, second and fourth quarters.
inline __m512i max_over_lanes(__m512i a, __m512i b) {
  return _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}
// Lane i: the largest of v[i]. Each step holds twice as many vectors' maxima, over half the lanes.
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
