// SPDX-License-Identifier: Apache-2.0
//
// From a line of codes to lines of operands (decode_body.h), with the byte and word permutations of
// AVX-512 VBMI and BW as tables. The same names as decode_avx2.h. Included inside a region.
#pragma once

// A table of 128 bytes looked up by the lower seven bits of each byte.
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
  // Unpacking works on 16 bytes at a time: eights are moved so that its results are in order.
  const __m512i eights = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const __m512i code = _mm512_permutexvar_epi64(eights, codes);
  const __m512i lows = low[code];
  // high | (code & sign)
  const __m512i highs = _mm512_ternarylogic_epi64(high[code], code, sign, 0xf8);
  out[0] = _mm512_unpacklo_epi8(lows, highs);
  out[1] = _mm512_unpackhi_epi8(lows, highs);
}

// Of four groups, [4][16] bytes: that of each column of `group`, as both bytes of a pair's words.
inline __m512i pair_index(int group) {
  const __m512i column = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i everywhere = _mm512_mullo_epi32(column, _mm512_set1_epi32(0x01010101));
  return _mm512_add_epi8(everywhere, _mm512_set1_epi8(static_cast<char>(group * kPanelWidth)));
}

// How far e8m0 scales are below kTop.
struct PowerScales {
  explicit PowerScales(const std::byte* bytes) : scales(load_line(bytes)) {}
  struct Group {
    Line below;
  };
  Group group(int index) const {
    constexpr __mmask64 kHighBytes = 0xaaaaaaaaaaaaaaaa;
    const __m512i high = _mm512_maskz_permutexvar_epi8(kHighBytes, pair_index(index), scales);
    return {
        _mm512_subs_epu16(_mm512_set1_epi16(static_cast<short>(kTop)), _mm512_srli_epi16(high, 1))};
  }
  static void expand(Line codes, const Group& group, Line (&out)[4]) {
    const __m512i table = load_line(kE2m1OfPower.data());
    for (int j = 0; j < 4; ++j) {
      out[j] = _mm512_subs_epu16(_mm512_permutexvar_epi16(codes, table), group.below);
      codes = _mm512_srli_epi16(codes, 4);
    }
  }
  Line scales;
};

// How far e5m3 scales, and 1½ times them, are below kTop.
struct E5m3Scales {
  explicit E5m3Scales(const std::byte* bytes) : scales(load_line(bytes)) {}
  struct Group {
    Line below, raised_below;
  };
  Group group(int index) const {
    constexpr __mmask64 kLowBytes = 0x5555555555555555;
    const __m512i code = _mm512_maskz_permutexvar_epi8(kLowBytes, pair_index(index), scales);
    const __m512i below = _mm512_sub_epi16(_mm512_set1_epi16(static_cast<short>(kTopOfE5m3)),
                                           _mm512_slli_epi16(code, 4));
    // The fraction, and in the upper bytes indices that give zero: (code & 7) | 0x8000.
    const __m512i fraction = _mm512_ternarylogic_epi64(
        code, _mm512_set1_epi16(7), _mm512_set1_epi16(static_cast<short>(0x8000)), 0xea);
    const __m512i raise = _mm512_shuffle_epi8(
        _mm512_broadcast_i32x4(
            _mm_load_si128(reinterpret_cast<const __m128i*>(kRaiseOfFraction.data()))),
        fraction);
    return {below, _mm512_sub_epi16(below, raise)};
  }
  static void expand(Line codes, const Group& group, Line (&out)[4]) {
    const __m512i table = load_line(kE2m1.data());
    const __m512i flag = _mm512_set1_epi16(static_cast<short>(kRaisedFlag));
    for (int j = 0; j < 4; ++j) {
      const __m512i element = _mm512_permutexvar_epi16(codes, table);
      const __mmask32 raised = _mm512_test_epi16_mask(element, flag);
      out[j] = _mm512_mask_subs_epu16(_mm512_subs_epu16(element, group.below), raised, element,
                                      group.raised_below);
      codes = _mm512_srli_epi16(codes, 4);
    }
  }
  Line scales;
};
