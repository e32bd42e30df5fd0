// SPDX-License-Identifier: Apache-2.0
//
// Expands a line of codes to lines of operands (body/decode.h) with AVX-512 VBMI, whose byte
// permutations are table lookups. Same names as avx2/decode.h. Included inside a region.
#pragma once

// A table of 128 bytes, indexed by the lower seven bits of each byte.
struct ByteTable {
  __m512i lower, upper;
  explicit ByteTable(const std::array<uint8_t, 128>& bytes)
      : lower(_mm512_load_si512(bytes.data())), upper(_mm512_load_si512(bytes.data() + 64)) {}
  __m512i operator[](__m512i index) const { return _mm512_permutex2var_epi8(lower, index, upper); }
};

inline void expand_int4(Line codes, Line (&out)[2]) {
  const __m512i low_half = _mm512_set1_epi8(15);
  out[0] = _mm512_and_si512(codes, low_half);
  out[1] = _mm512_and_si512(_mm512_srli_epi16(codes, 4), low_half);
}

inline void expand_e4m3(Line codes, Line (&out)[2]) {
  const ByteTable low(kE4m3.low), high(kE4m3.high);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  // Unpacking works within 128 bits. Groups of eight bytes are permuted first, so that its results
  // are in order.
  const __m512i eights = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const __m512i code = _mm512_permutexvar_epi64(eights, codes);
  const __m512i lows = low[code];
  // high | (code & sign)
  const __m512i highs = _mm512_ternarylogic_epi64(high[code], code, sign, 0xf8);
  out[0] = _mm512_unpacklo_epi8(lows, highs);
  out[1] = _mm512_unpackhi_epi8(lows, highs);
}

inline void expand_e2m1(Line codes, Line (&out)[2]) {
  const __m512i table = load_line(kE2m1.data());
  out[0] = _mm512_permutexvar_epi8(codes, table);
  out[1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), table);
}

// Converts 16 bytes to the float32 whose bits are byte · 2^Shift + offset.
template <int Shift>
inline F32x16 floats_of_bytes(const std::byte* bytes, uint32_t offset) {
  const __m512i codes =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(codes, Shift),
                                              _mm512_set1_epi32(static_cast<int>(offset))));
}
