// SPDX-License-Identifier: Apache-2.0
//
// From a line of codes to lines of operands (decode_body.h), with byte shuffles as tables. The same
// names as decode_avx512.h. Included inside a region.
#pragma once

inline void expand_int4(Line codes, Line (&out)[2]) {
  const __m256i low_half = _mm256_set1_epi8(15);
  const auto upper = [&](__m256i v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), low_half); };
  out[0] = {_mm256_and_si256(codes.lo, low_half), _mm256_and_si256(codes.hi, low_half)};
  out[1] = {upper(codes.lo), upper(codes.hi)};
}

// Sixteen e4m3: exponent and fraction move into place and the bias is raised by 120; the eight
// magnitudes below 2^-6 come from a table, and NaN stays one.
inline __m256i bf16_of_e4m3(__m128i codes) {
  const __m256i small_table = _mm256_broadcastsi128_si256(
      _mm_setr_epi16(0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
  const __m256i code = _mm256_cvtepu8_epi16(codes);
  const __m256i magnitude = _mm256_and_si256(code, _mm256_set1_epi16(0x7f));
  const __m256i large =
      _mm256_add_epi16(_mm256_slli_epi16(magnitude, 4), _mm256_set1_epi16(120 << 7));
  const __m256i index = _mm256_add_epi16(_mm256_mullo_epi16(magnitude, _mm256_set1_epi16(0x0202)),
                                         _mm256_set1_epi16(0x0100));
  const __m256i small = _mm256_shuffle_epi8(small_table, index);
  const __m256i is_small = _mm256_cmpgt_epi16(_mm256_set1_epi16(8), magnitude);
  const __m256i is_nan = _mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f));
  const __m256i number = _mm256_blendv_epi8(large, small, is_small);
  const __m256i value = _mm256_blendv_epi8(number, _mm256_set1_epi16(0x7fc0), is_nan);
  return _mm256_or_si256(value, _mm256_slli_epi16(_mm256_xor_si256(code, magnitude), 8));
}
inline Line line_of_e4m3(__m256i codes) {
  return {bf16_of_e4m3(_mm256_castsi256_si128(codes)),
          bf16_of_e4m3(_mm256_extracti128_si256(codes, 1))};
}
inline void expand_e4m3(Line codes, Line (&out)[2]) {
  out[0] = line_of_e4m3(codes.lo);
  out[1] = line_of_e4m3(codes.hi);
}

// Words looked up by nibbles.
struct NibbleTable {
  __m256i low, high;
  explicit NibbleTable(const std::array<uint16_t, 32>& words) {
    alignas(16) uint8_t lows[16], highs[16];
    for (size_t i = 0; i < 16; ++i) {
      lows[i] = static_cast<uint8_t>(words[i] & 0xff);
      highs[i] = static_cast<uint8_t>(words[i] >> 8);
    }
    low = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(lows)));
    high = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(highs)));
  }
  // nibble: of each word. An index byte with its highest bit set gives zero.
  __m256i operator[](__m256i nibble) const {
    const __m256i in_low = _mm256_or_si256(nibble, _mm256_set1_epi16(static_cast<short>(0x8000)));
    const __m256i in_high = _mm256_or_si256(_mm256_slli_epi16(nibble, 8), _mm256_set1_epi16(0x80));
    return _mm256_or_si256(_mm256_shuffle_epi8(low, in_low), _mm256_shuffle_epi8(high, in_high));
  }
};

// For both halves of a line and each nibble of its words: out = product(nibble, lower half?).
template <typename Product>
inline void for_each_nibble(Line codes, Line (&out)[4], Product product) {
  const __m256i mask = _mm256_set1_epi16(15);
  for (int j = 0; j < 4; ++j) {
    out[j].lo = product(_mm256_and_si256(_mm256_srli_epi16(codes.lo, 4 * j), mask), true);
    out[j].hi = product(_mm256_and_si256(_mm256_srli_epi16(codes.hi, 4 * j), mask), false);
  }
}

// Words of 16 columns, each for both values of a pair.
template <typename Word>
inline Line pairs_of(const std::byte* columns, Word word) {
  alignas(32) uint16_t words[2 * kPanelWidth];
  for (int i = 0; i < kPanelWidth; ++i) {
    const auto both = static_cast<uint16_t>(word(static_cast<unsigned>(columns[i])));
    words[2 * i] = words[2 * i + 1] = both;
  }
  return load_line(words);
}

// How far e8m0 scales are below kTop.
struct PowerScales {
  explicit PowerScales(const std::byte* scales) : bytes(scales) {}
  struct Group {
    Line below;
  };
  Group group(int index) const {
    return {pairs_of(bytes + index * kPanelWidth,
                     [](unsigned scale) { return scale << 7 > kTop ? 0 : kTop - (scale << 7); })};
  }
  static void expand(Line codes, const Group& group, Line (&out)[4]) {
    const NibbleTable table(kE2m1OfPower);
    for_each_nibble(codes, out, [&](__m256i nibble, bool lower) {
      return _mm256_subs_epu16(table[nibble], lower ? group.below.lo : group.below.hi);
    });
  }
  const std::byte* bytes;
};

// How far e5m3 scales, and 1½ times them, are below kTop.
struct E5m3Scales {
  explicit E5m3Scales(const std::byte* scales) : bytes(scales) {}
  struct Group {
    Line below, raised_below;
  };
  Group group(int index) const {
    const auto below = [](unsigned code) { return kTopOfE5m3 - code * 16; };
    const auto raised_below = [&](unsigned code) {
      return below(code) - kRaiseOfFraction[code & 7];
    };
    const std::byte* scales = bytes + index * kPanelWidth;
    return {pairs_of(scales, below), pairs_of(scales, raised_below)};
  }
  static void expand(Line codes, const Group& group, Line (&out)[4]) {
    const NibbleTable table(kE2m1);
    const __m256i flag = _mm256_set1_epi16(static_cast<short>(kRaisedFlag));
    for_each_nibble(codes, out, [&](__m256i nibble, bool lower) {
      const __m256i element = table[nibble];
      const __m256i raised = _mm256_cmpeq_epi16(_mm256_and_si256(element, flag), flag);
      const __m256i below = lower ? group.below.lo : group.below.hi;
      const __m256i raised_below = lower ? group.raised_below.lo : group.raised_below.hi;
      return _mm256_subs_epu16(element, _mm256_blendv_epi8(below, raised_below, raised));
    });
  }
  const std::byte* bytes;
};
