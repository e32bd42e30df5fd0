// SPDX-License-Identifier: Apache-2.0
//
// kernels/row_format.h in F32x16, for every instruction set. The same bits as ref: every step is
// exact, or rounds as ref does. Included inside a region.
#pragma once

inline I32x16 magnitude_bits(F32x16 v) { return bit_and(bits_of(v), set1_i32(0x7fffffff)); }

// Rounds to e4m3, to the nearest, ties to even. The addition of an anchor does the rounding: the
// last bit of the anchor is worth one e4m3 step at the magnitude's exponent. The exponent is then
// added to the code in steps, too. REQUIRES: |v| < 464, the least magnitude that would round to
// more than 448.
inline I32x16 to_e4m3(F32x16 v) {
  constexpr int kDropped = 23 - 3;
  const I32x16 min = set1_i32((127 - 6) << 23);
  const I32x16 exponent = max(bit_and(bits_of(v), set1_i32(0x7f800000)), min);
  const I32x16 anchor = add(exponent, set1_i32(kDropped << 23));
  const I32x16 sum = bits_of(add(from_bits(magnitude_bits(v)), from_bits(anchor)));
  const I32x16 code = add(sub(sum, anchor), shift_right<kDropped>(sub(exponent, min)));
  return bit_or(code, bit_and(shift_right<24>(bits_of(v)), set1_i32(0x80)));
}

// Rounds the float32 with bits u to bf16, in the upper half of each lane; the lower half is
// undefined. Not for NaN.
inline I32x16 round_to_bf16(I32x16 u) {
  const I32x16 last = bit_and(shift_right<16>(u), set1_i32(1));
  return add(add(u, set1_i32(0x7fff)), last);
}
// Stores v with the bits of Bf16(float), by the conversion instruction if it rounds v alike.
inline void store_exact(Bf16* p, F32x16 v) {
  if (round_alike(v)) return store_bf16(p, v);
  const I32x16 u = bits_of(v);
  const I32x16 rounded = shift_right<16>(round_to_bf16(u));
  const I32x16 quiet = bit_or(shift_right<16>(u), set1_i32(0x40));
  store_u16(p, where_less(set1_i32(0x7f800000), magnitude_bits(v), quiet, rounded));
}
inline void store_exact(Bf16* p, F32x16 first, F32x16 second) {
  if (round_alike(first, second)) return store_bf16(p, first, second);
  store_exact(p, first);
  store_exact(p + kPanelWidth, second);
}
inline void store_exact(float* p, F32x16 v) { store(p, v); }

inline void put_float(std::byte* to, float value) { std::memcpy(to, &value, sizeof(value)); }
inline float get_float(const std::byte* from) {
  float value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// ---- encoding ----

// The largest magnitude of each of `count` groups, at most 16; 0 in the other lanes.
template <int kGroup, typename T>
inline I32x16 largest_of_groups(const T* x, int count) {
  I32x16 largest[kPanelWidth];
  for (int group = 0; group < kPanelWidth; ++group) {
    largest[group] = set1_i32(0);
    if (group >= count) continue;
    for (int i = 0; i < kGroup; i += kPanelWidth) {
      largest[group] = max(largest[group], magnitude_bits(load(x + group * kGroup + i)));
    }
  }
  return max_of_each(largest);
}

// Finite values rounded as by Bf16(float); undefined for others.
inline F32x16 as_bf16(F32x16 v) {
  const I32x16 upper = set1_i32(static_cast<int32_t>(0xffff0000u));
  return from_bits(bit_and(round_to_bf16(bits_of(v)), upper));
}

// fp8_scale (row_scales.h) of `count` groups, at most 16.
template <typename T>
inline void fp8_scales(const T* x, int count, std::byte* scales, float* to_code) {
  const I32x16 largest = largest_of_groups<kFp8RowGroup>(x, count);
  const I32x16 min = set1_i32(kMinCoded), beyond = set1_i32(kBeyondCoded);
  const F32x16 rounded = as_bf16(div(set1(448.0f), from_bits(largest)));
  const F32x16 scale = div(set1(1.0f), rounded);
  const I32x16 inverse = bits_of(rounded);
  const I32x16 inverse_or_zero = where_less(largest, min, set1_i32(0), inverse);
  store(to_code, from_bits(where_less(largest, beyond, inverse_or_zero, set1_i32(0))));
  const I32x16 scale_or_zero = where_less(largest, min, set1_i32(0), bits_of(scale));
  alignas(64) float all[kPanelWidth];
  store(all, from_bits(where_less(largest, beyond, scale_or_zero, set1_i32(kNotFinite))));
  std::memcpy(scales, all, static_cast<size_t>(count) * sizeof(float));
}

// Encodes one group of an fp8 row.
template <typename T>
inline void encode_e4m3(const T* x, float to_code, std::byte* out) {
  for (int i = 0; i < kFp8RowGroup; i += 4 * kPanelWidth) {
    I32x16 codes[4];
    for (int j = 0; j < 4; ++j) {
      codes[j] = to_e4m3(mul(load(x + i + j * kPanelWidth), set1(to_code)));
    }
    store_u8(out + i, codes);
  }
}

// The last, short group of a row with zeros behind it.
template <int kGroup, typename T>
struct LastGroup {
  // Room for a whole panel of groups: gcc takes masked loads of absent groups for real ones.
  alignas(64) T values[kGroup * kPanelWidth];

  LastGroup(const T* x, int hidden) {
    const int count = hidden % kGroup;
    std::fill_n(values, kGroup, T());
    std::memcpy(values, x + hidden - count, static_cast<size_t>(count) * sizeof(T));
  }
};

// Encodes whole groups of an fp8 row.
template <typename T>
inline void encode_fp8_groups(const T* x, int num_groups, std::byte* row, std::byte* scales) {
  // First all scales of a block of groups, then its values: a scale is a long chain of dependent
  // instructions, which would otherwise delay each group.
  constexpr int kBlock = 128;
  alignas(64) float to_code[kBlock];
  for (int block = 0; block < num_groups; block += kBlock) {
    const int count = std::min(kBlock, num_groups - block);
    for (int first = 0; first < count; first += kPanelWidth) {
      fp8_scales(x + (block + first) * kFp8RowGroup, std::min(kPanelWidth, count - first),
                 scales + static_cast<size_t>(block + first) * sizeof(float), to_code + first);
    }
    for (int group = 0; group < count; ++group) {
      const int k = (block + group) * kFp8RowGroup;
      if (to_code[group] == 0.0f) {
        std::memset(row + k, 0, kFp8RowGroup);
        continue;
      }
      encode_e4m3(x + k, to_code[group], row + k);
    }
  }
}

template <typename T>
inline void encode_fp8(const T* x, int hidden, std::byte* row) {
  std::byte* scales = row + row_scales_offset(RowFormat::kFp8, hidden);
  const int whole = hidden / kFp8RowGroup;
  encode_fp8_groups(x, whole, row, scales);
  if (whole * kFp8RowGroup == hidden) return;
  const LastGroup<kFp8RowGroup, T> last(x, hidden);
  encode_fp8_groups(last.values, 1, row + whole * kFp8RowGroup,
                    scales + static_cast<size_t>(whole) * sizeof(float));
}

// Writes the largest magnitude of each group of an nvfp4 row to of_groups. Returns that of the row,
// as float bits.
template <typename T>
inline uint32_t find_largest(const T* x, int num_groups, float* of_groups) {
  I32x16 of_row = set1_i32(0);
  for (int group = 0; group < num_groups; group += kPanelWidth) {
    const int count = std::min(kPanelWidth, num_groups - group);
    const I32x16 largest = largest_of_groups<kNvfp4RowGroup>(x + group * kNvfp4RowGroup, count);
    store_n(of_groups + group, from_bits(largest), count);
    of_row = max(of_row, largest);
  }
  return static_cast<uint32_t>(reduce_max(of_row));
}

// Computes the scales of up to 16 groups from their largest magnitudes: writes their e4m3 codes to
// `codes`, and the factors of the groups' values to to_steps. The factor is zero if the code is.
inline void nvfp4_scales(const float* largest, int count, const RowScale& of_row, std::byte* codes,
                         float* to_steps) {
  const I32x16 code = to_e4m3(mul(load_n(largest, count), set1(of_row.to_code)));
  alignas(16) std::byte bytes[kPanelWidth];
  store_u8(bytes, code);
  if (count == kPanelWidth) {  // one store, not a call
    std::memcpy(codes, bytes, kPanelWidth);
  } else {
    std::memcpy(codes, bytes, static_cast<size_t>(count));
  }
  const F32x16 scales = mul(load_256ths_of_e4m3(bytes), set1(of_row.scale * 256.0f));
  const I32x16 inverse = bits_of(div(set1(kE2m1Steps), scales));
  store(to_steps, from_bits(where_less(set1_i32(0), code, inverse, set1_i32(0))));
}

// Encodes the values of `count` groups. to_steps: [count].
template <typename T>
inline void encode_e2m1(const T* x, int count, const float* to_steps, std::byte* out) {
  const auto steps_of = [&](int group) {
    return to_i32(mul(load(x + group * kNvfp4RowGroup), set1(to_steps[group])));
  };
  int group = 0;
  for (; group + 4 <= count; group += 4) {
    const I32x16 steps[] = {steps_of(group), steps_of(group + 1), steps_of(group + 2),
                            steps_of(group + 3)};
    store_e2m1_of_steps(out + group * kNvfp4RowGroup / 2, steps);
  }
  if (group == count) return;
  I32x16 steps[] = {set1_i32(0), set1_i32(0), set1_i32(0), set1_i32(0)};
  for (int i = group; i < count; ++i) steps[i - group] = steps_of(i);
  std::byte codes[4 * kNvfp4RowGroup / 2];
  store_e2m1_of_steps(codes, steps);
  std::memcpy(out + group * kNvfp4RowGroup / 2, codes,
              static_cast<size_t>(count - group) * kNvfp4RowGroup / 2);
}

template <typename T>
inline void encode_nvfp4(const T* x, int hidden, std::byte* row) {
  // The maxima are stored in the second half of the codes' place, so that no memory is allocated.
  // No maximum is overwritten before it is used: codes of the groups before g end at byte 8g, and
  // the maximum of g is at byte 4 · (num_groups + g).
  const int num_groups = row_groups(RowFormat::kNvfp4, hidden), whole = hidden / kNvfp4RowGroup;
  float* const largest = reinterpret_cast<float*>(row) + num_groups;
  const LastGroup<kNvfp4RowGroup, T> last(x, hidden);
  uint32_t largest_of_row = find_largest(x, whole, largest);
  if (whole < num_groups) {
    largest_of_row = std::max(largest_of_row, find_largest(last.values, 1, largest + whole));
  }
  const RowScale of_row = nvfp4_scale(largest_of_row);
  std::byte* scales = row + row_scales_offset(RowFormat::kNvfp4, hidden);
  put_float(row + row_scales_end(RowFormat::kNvfp4, hidden), of_row.scale);
  if (of_row.to_code == 0.0f) {
    std::memset(row, 0, row_scales_end(RowFormat::kNvfp4, hidden));
    return;
  }
  // First all scales of a block of groups, then its values; see encode_fp8.
  constexpr int kBlock = 512;
  alignas(64) float to_steps[kBlock];
  for (int block = 0; block < num_groups; block += kBlock) {
    const int count = std::min(kBlock, num_groups - block);
    const int in_x = std::min(count, whole - block);
    for (int first = 0; first < count; first += kPanelWidth) {
      nvfp4_scales(largest + block + first, std::min(kPanelWidth, count - first), of_row,
                   scales + block + first, to_steps + first);
    }
    std::byte* codes = row + block * kNvfp4RowGroup / 2;
    encode_e2m1(x + block * kNvfp4RowGroup, in_x, to_steps, codes);
    if (in_x == count) continue;
    encode_e2m1(last.values, 1, to_steps + in_x, codes + in_x * kNvfp4RowGroup / 2);
  }
}

// Plain rows.
inline void convert_row(const float* x, int n, Bf16* y) { to_bf16(x, n, y); }
inline void convert_row(const Bf16* x, int n, Bf16* y) {
  std::memcpy(y, x, static_cast<size_t>(n) * sizeof(Bf16));
}
template <typename T>
inline void convert_row(const T* x, int n, float* y) {
  for_each_vector(n, [&](int i, int count) { store_n(y + i, load_n(x + i, count), count); });
}

template <typename T>
inline void encode(const T* x, RowFormat format, int hidden, std::byte* row) {
  const size_t bytes = row_bytes(format, hidden);
  if (is_coded(format)) std::memset(row + bytes - kRowAlignment, 0, kRowAlignment);
  switch (format) {
    case RowFormat::kF32:
      return convert_row(x, hidden, reinterpret_cast<float*>(row));
    case RowFormat::kBf16:
      return convert_row(x, hidden, reinterpret_cast<Bf16*>(row));
    case RowFormat::kFp8:
      return encode_fp8(x, hidden, row);
    case RowFormat::kNvfp4:
      return encode_nvfp4(x, hidden, row);
  }
}

void encode_row(Dtype x_dtype, const void* x, RowFormat format, int hidden, std::byte* row) {
  if (x_dtype == Dtype::kBf16) {
    encode(static_cast<const Bf16*>(x), format, hidden, row);
  } else {
    encode(static_cast<const float*>(x), format, hidden, row);
  }
}

// ---- decoding ----

// Calls visit(i, values) for every 16 values of [k, k + kStep) of a row.
struct Fp8Rows {
  static constexpr int kStep = kFp8RowGroup;
  // The scale of the group at k.
  static float scale(const std::byte* row, int hidden, int k) {
    const std::byte* scales = row + row_scales_offset(RowFormat::kFp8, hidden);
    return get_float(scales + static_cast<size_t>(k / kFp8RowGroup) * sizeof(float));
  }
  template <typename Visit>
  static void visit(const std::byte* row, int hidden, int k, Visit visit) {
    const F32x16 of_group = set1(scale(row, hidden, k) * 256.0f);
    for (int i = 0; i < kStep; i += kPanelWidth) {
      visit(k + i, mul(load_256ths_of_e4m3(row + k + i), of_group));
    }
  }
};

// The same for nvfp4. The last step of a row may be short.
struct Nvfp4Rows {
  static constexpr int kStep = kPanelWidth * kNvfp4RowGroup;
  // The scales of `count` groups from k on.
  static F32x16 scales(const std::byte* row, int hidden, int k, int count) {
    const std::byte* codes =
        row + row_scales_offset(RowFormat::kNvfp4, hidden) + k / kNvfp4RowGroup;
    const float of_row = get_float(row + row_scales_end(RowFormat::kNvfp4, hidden));
    alignas(16) std::byte bytes[kPanelWidth] = {};
    if (count < kPanelWidth) {
      std::memcpy(bytes, codes, static_cast<size_t>(count));
      codes = bytes;
    }
    return mul(load_256ths_of_e4m3(codes), set1(of_row * 256.0f));
  }
  template <typename Visit>
  static void visit(const std::byte* row, int hidden, int k, Visit visit) {
    const int count = std::min(kPanelWidth, row_groups(RowFormat::kNvfp4, hidden - k));
    alignas(64) float of_groups[kPanelWidth];
    store(of_groups, scales(row, hidden, k, count));
    for (int group = 0; group < count; ++group) {
      const int i = k + group * kNvfp4RowGroup;
      visit(i, mul(load_e2m1(row + i / 2), set1(of_groups[group])));
    }
  }
};

template <typename Rows, typename T>
inline void decode_coded(const std::byte* row, int hidden, T* y) {
  for (int k = 0; k < hidden; k += Rows::kStep) {
    Rows::visit(row, hidden, k, [&](int i, F32x16 values) {
      if (i + kPanelWidth <= hidden) return store_exact(y + i, values);
      T last[kPanelWidth];
      store_exact(last, values);
      std::memcpy(y + i, last, static_cast<size_t>(std::max(hidden - i, 0)) * sizeof(T));
    });
  }
}

template <typename T>
inline void decode(RowFormat format, const std::byte* row, int hidden, T* y) {
  switch (format) {
    case RowFormat::kF32:
      return convert_row(reinterpret_cast<const float*>(row), hidden, y);
    case RowFormat::kBf16:
      return convert_row(reinterpret_cast<const Bf16*>(row), hidden, y);
    case RowFormat::kFp8:
      return decode_coded<Fp8Rows>(row, hidden, y);
    case RowFormat::kNvfp4:
      return decode_coded<Nvfp4Rows>(row, hidden, y);
  }
}

void decode_row(RowFormat format, const std::byte* row, int hidden, Dtype y_dtype, void* y) {
  if (y_dtype == Dtype::kBf16) {
    decode(format, row, hidden, static_cast<Bf16*>(y));
  } else {
    decode(format, row, hidden, static_cast<float*>(y));
  }
}
