// SPDX-License-Identifier: Apache-2.0
//
// Decoders of codes, with byte shuffles as tables. The same names as decode_avx512.h. Included
// inside a region.
#pragma once

inline __m256i load_bytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline void store_bytes(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

// rows × 64 bytes of nibbles (packed_matrix.h) to rows × 128 bytes.
inline void decode_int4(const std::byte* codes, int rows, uint8_t* out) {
  const __m256i low_half = _mm256_set1_epi8(15);
  for (int i = 0; i < rows * 2; ++i) {
    const __m256i both = load_bytes(codes + i * 32);
    uint8_t* to = out + i / 2 * 128 + i % 2 * 32;
    store_bytes(to, _mm256_and_si256(both, low_half));
    store_bytes(to + 64, _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half));
  }
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

// count e4m3 to bf16; a multiple of 64.
inline void decode_e4m3(const std::byte* codes, int count, Bf16* out) {
  for (int i = 0; i < count; i += 16) {
    store_bytes(out + i,
                bf16_of_e4m3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i))));
  }
}

// Table entries as low and high bytes, for shuffles.
struct StepTable {
  __m256i low, high;
  explicit StepTable(const std::array<uint16_t, 32>& steps) {
    alignas(16) uint8_t lows[16], highs[16];
    for (int i = 0; i < 16; ++i) {
      lows[i] = static_cast<uint8_t>(steps[i]);
      highs[i] = static_cast<uint8_t>(steps[i] >> 8);
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

inline __m256i has_flag(__m256i step, int flag) {
  const __m256i wanted = _mm256_set1_epi16(static_cast<short>(flag));
  return _mm256_cmpeq_epi16(_mm256_and_si256(step, wanted), wanted);
}

// Scales of a group, as a word for each value of a row of pairs.
struct GroupScales {
  alignas(32) uint16_t scale[2 * kPanelWidth];
  alignas(32) uint16_t raised[2 * kPanelWidth];  // 1½ times

  // Less the flags that a step carries.
  void set(int column, uint16_t bits, uint16_t raised_bits) {
    for (int i = 0; i < 2; ++i) {
      scale[2 * column + i] = static_cast<uint16_t>(bits - kNonzeroFlag);
      raised[2 * column + i] = static_cast<uint16_t>(raised_bits - kNonzeroFlag - kRaisedFlag);
    }
  }
};

// Eight values of k times the group's scale, as four rows of pairs.
inline void decode_e2m1(const std::byte* codes, const StepTable& steps, const GroupScales& scales,
                        Bf16* out) {
  for (int half = 0; half < 2; ++half) {
    const __m256i code = load_bytes(codes + half * 32);
    const __m256i scale = load_bytes(scales.scale + half * 16);
    const __m256i raised = load_bytes(scales.raised + half * 16);
    for (int j = 0; j < 4; ++j) {
      const __m256i nibble =
          _mm256_and_si256(_mm256_srli_epi16(code, 4 * j), _mm256_set1_epi16(15));
      const __m256i step = steps[nibble];
      const __m256i from = _mm256_blendv_epi8(scale, raised, has_flag(step, kRaisedFlag));
      store_bytes(out + j * 32 + half * 16,
                  _mm256_and_si256(_mm256_add_epi16(from, step), has_flag(step, kNonzeroFlag)));
    }
  }
}

// scales: [4][16] bytes; set(column, scale) gives a group's. Groups are `rows` × 8 of k.
template <typename Set>
inline void decode_groups(const std::byte* scales, const std::byte* codes, int rows, Bf16* out,
                          Set set) {
  const StepTable steps(kE2m1Steps);
  GroupScales group_scales;
  for (int group = 0; group < 4; ++group) {
    for (int column = 0; column < kPanelWidth; ++column) {
      set(column, static_cast<unsigned>(scales[group * kPanelWidth + column]), group_scales);
    }
    for (int row = group * rows; row < (group + 1) * rows; ++row) {
      decode_e2m1(codes + row * 64, steps, group_scales, out + row * 128);
    }
  }
}

// scales: [4][16] e4m3.
inline void decode_nvfp4(const std::byte* scales, const std::byte* codes, Bf16* out) {
  decode_groups(scales, codes, 2, out, [](int column, unsigned code, GroupScales& group) {
    const auto word = [&](const ByteTables& tables) {
      return static_cast<uint16_t>(tables.high[code & 127] << 8 | tables.low[code & 127]);
    };
    group.set(column, word(kE4m3), word(kE4m3Raised));
  });
}

// scales: [4][16] e8m0.
inline void decode_mxfp4(const std::byte* scales, const std::byte* codes, Bf16* out) {
  decode_groups(scales, codes, 4, out, [](int column, unsigned code, GroupScales& group) {
    const auto bits = static_cast<uint16_t>(code << 7);
    group.set(column, bits, bits | 0x40);
  });
}
