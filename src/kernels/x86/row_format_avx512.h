// SPDX-License-Identifier: Apache-2.0
//
// What row_format_body.h needs beside simd_avx512.h. The same names as row_format_avx2.h. Included
// inside a region.
#pragma once

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

// 16 e2m1 of 8 bytes.
inline F32x16 load_e2m1(const void* p) {
  const __m512i magnitudes_and_signs =
      bits_of(_mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f,
                             -1.5f, -2.0f, -3.0f, -4.0f, -6.0f));
  const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  const __m512i codes = _mm512_or_si512(bytes, _mm512_slli_epi64(bytes, 28));
  return _mm512_permutexvar_ps(codes, from_bits(magnitudes_and_signs));
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
