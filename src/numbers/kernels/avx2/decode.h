// SPDX-License-Identifier: Apache-2.0
//
// Expands a line of codes to lines of operands (body/decode.h) in AVX2, with byte shuffles as table
// lookups. Same names as avx512/decode.h. Included inside a region.
#pragma once

inline void expand_int4(Line codes, Line (&out)[2]) {
  const __m256i low_half = _mm256_set1_epi8(15);
  const auto upper = [&](__m256i v) { return _mm256_and_si256(_mm256_srli_epi16(v, 4), low_half); };
  out[0] = {_mm256_and_si256(codes.lo, low_half), _mm256_and_si256(codes.hi, low_half)};
  out[1] = {upper(codes.lo), upper(codes.hi)};
}

// Widens sixteen e4m3 to bf16: exponent and fraction are shifted into place, and the bias is raised
// by 127 − 7 = 120. The eight magnitudes below 2^-6 come from a table, and NaN stays NaN.
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

inline void expand_e2m1(Line codes, Line (&out)[2]) {
  const __m256i table =
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kE2m1.data())));
  expand_int4(codes, out);
  for (Line& line : out) {
    line = {_mm256_shuffle_epi8(table, line.lo), _mm256_shuffle_epi8(table, line.hi)};
  }
}

// Converts 16 bytes to the float32 whose bits are byte · 2^Shift + offset.
template <int Shift>
inline F32x16 floats_of_bytes(const std::byte* bytes, uint32_t offset) {
  const auto eight = [&](const std::byte* from) {
    const __m256i codes =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(codes, Shift),
                                                _mm256_set1_epi32(static_cast<int>(offset))));
  };
  return {eight(bytes), eight(bytes + 8)};
}
