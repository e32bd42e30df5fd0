// SPDX-License-Identifier: Apache-2.0
//
// Decoders of codes, with the byte and word permutations of AVX-512 VBMI and BW as tables. The same
// names as decode_avx2.h. Included inside a region.
#pragma once

inline __m512i load_table(const void* table) { return _mm512_load_si512(table); }

// rows × 64 bytes of nibbles (packed_matrix.h) to rows × 128 bytes.
inline void decode_int4(const std::byte* codes, int rows, uint8_t* out) {
  const __m512i low_half = _mm512_set1_epi8(15);
  for (int row = 0; row < rows; ++row) {
    const __m512i both = _mm512_loadu_si512(codes + row * 64);
    _mm512_store_si512(out + row * 128, _mm512_and_si512(both, low_half));
    _mm512_store_si512(out + row * 128 + 64,
                       _mm512_and_si512(_mm512_srli_epi16(both, 4), low_half));
  }
}

// A table of 128 bytes looked up by the lower seven bits of each byte.
struct ByteTable {
  __m512i lower, upper;
  explicit ByteTable(const std::array<uint8_t, 128>& bytes)
      : lower(load_table(bytes.data())), upper(load_table(bytes.data() + 64)) {}
  __m512i operator[](__m512i index) const { return _mm512_permutex2var_epi8(lower, index, upper); }
};

// count e4m3 to bf16; a multiple of 64.
inline void decode_e4m3(const std::byte* codes, int count, Bf16* out) {
  const ByteTable low(kE4m3.low), high(kE4m3.high);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  // Unpacking works on 16 bytes at a time: eights are moved so that its results are in order.
  const __m512i eights = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  for (int i = 0; i < count; i += 64) {
    const __m512i code = _mm512_permutexvar_epi64(eights, _mm512_loadu_si512(codes + i));
    const __m512i lows = low[code];
    // high | (code & sign)
    const __m512i highs = _mm512_ternarylogic_epi64(high[code], code, sign, 0xf8);
    _mm512_store_si512(out + i, _mm512_unpacklo_epi8(lows, highs));
    _mm512_store_si512(out + i + 32, _mm512_unpackhi_epi8(lows, highs));
  }
}

// Eight values of k times the group's scale, as four rows of pairs. scale, raised: less the flags.
inline void decode_e2m1(const std::byte* codes, __m512i scale, __m512i raised, Bf16* out) {
  const __m512i steps = load_table(kE2m1Steps.data());
  const __m512i raised_flag = _mm512_set1_epi16(kRaisedFlag);
  const __m512i nonzero_flag = _mm512_set1_epi16(kNonzeroFlag);
  __m512i code = _mm512_loadu_si512(codes);
  for (int j = 0; j < 4; ++j) {
    const __m512i step = _mm512_permutexvar_epi16(code, steps);
    const __mmask32 up = _mm512_test_epi16_mask(step, raised_flag);
    const __mmask32 some = _mm512_test_epi16_mask(step, nonzero_flag);
    const __m512i from = _mm512_mask_mov_epi16(scale, up, raised);
    _mm512_store_si512(out + j * 32, _mm512_maskz_add_epi16(some, from, step));
    code = _mm512_srli_epi16(code, 4);
  }
}

// scales: [4][16] e4m3.
inline void decode_nvfp4(const std::byte* scales, const std::byte* codes, Bf16* out) {
  const __m512i code = _mm512_loadu_si512(scales);
  const __m512i low = ByteTable(kE4m3.low)[code], high = ByteTable(kE4m3.high)[code];
  const __m512i raised_low = ByteTable(kE4m3Raised.low)[code];
  const __m512i raised_high = ByteTable(kE4m3Raised.high)[code];
  // To each column's pair of words: its low byte, its high byte, and both again.
  const __m512i column = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i index = _mm512_add_epi32(_mm512_mullo_epi32(column, _mm512_set1_epi32(0x01010101)),
                                   _mm512_set1_epi32(0x40004000));
  for (int group = 0; group < 4; ++group) {
    const __m512i scale = _mm512_sub_epi16(_mm512_permutex2var_epi8(low, index, high),
                                           _mm512_set1_epi16(kNonzeroFlag));
    const __m512i raised =
        _mm512_sub_epi16(_mm512_permutex2var_epi8(raised_low, index, raised_high),
                         _mm512_set1_epi16(kNonzeroFlag + kRaisedFlag));
    for (int row = 0; row < 2; ++row) {
      decode_e2m1(codes + (group * 2 + row) * 64, scale, raised, out + (group * 2 + row) * 128);
    }
    index = _mm512_add_epi8(index, _mm512_set1_epi8(16));
  }
}

// As decode_e2m1, of scales that are powers of two.
inline void decode_e2m1_of_power(const std::byte* codes, __m512i scale, Bf16* out) {
  const __m512i steps = load_table(kE2m1StepsOfPower.data());
  const __m512i nonzero_flag = _mm512_set1_epi16(kNonzeroFlag);
  __m512i code = _mm512_loadu_si512(codes);
  for (int j = 0; j < 4; ++j) {
    const __m512i step = _mm512_permutexvar_epi16(code, steps);
    const __mmask32 some = _mm512_test_epi16_mask(step, nonzero_flag);
    _mm512_store_si512(out + j * 32, _mm512_maskz_add_epi16(some, scale, step));
    code = _mm512_srli_epi16(code, 4);
  }
}

// scales: [4][16] e8m0.
inline void decode_mxfp4(const std::byte* scales, const std::byte* codes, Bf16* out) {
  for (int group = 0; group < 4; ++group) {
    const __m512i exponent = _mm512_cvtepu8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + group * kPanelWidth)));
    const __m512i once = _mm512_slli_epi32(exponent, 7);
    const __m512i twice = _mm512_or_si512(once, _mm512_slli_epi32(once, 16));
    const __m512i scale = _mm512_sub_epi16(twice, _mm512_set1_epi16(kNonzeroFlag));
    for (int row = 0; row < 4; ++row) {
      decode_e2m1_of_power(codes + (group * 4 + row) * 64, scale, out + (group * 4 + row) * 128);
    }
  }
}
