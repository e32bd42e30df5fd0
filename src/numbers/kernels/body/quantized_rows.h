// SPDX-License-Identifier: Apache-2.0
//
// quantized_rows.h in F32x16, for every instruction set. Included inside a region.
#pragma once

inline constexpr int kLineCodes = sizeof(Line);

// Compares magnitudes as integers: the bits of NaN are the largest, while a maximum of floats could
// drop a NaN.
template <typename T>
inline float largest_magnitude(const T* x, int count) {
  I32x16 largest[kLineCodes / kPanelWidth];
  for (I32x16& of : largest) of = set1_i32(0);
  int at = 0;
  for (; at + kLineCodes <= count; at += kLineCodes) {
    const T* of_line = x + at;
    for (I32x16& of : largest) {
      of = max(of, bits_of(abs(load(of_line))));
      of_line += kPanelWidth;
    }
  }
  for_each_vector(count - at, [&](int i, int n) {
    largest[0] = max(largest[0], bits_of(abs(load_n(x + at + i, n))));
  });
  const I32x16 of_all = max(max(largest[0], largest[1]), max(largest[2], largest[3]));
  return std::bit_cast<float>(reduce_max(of_all));
}

// Computes the codes of a group and their sums. x has `count` values; the rest of the group is
// zero.
template <typename T>
inline void quantize_group(const T* x, int count, float inverse, const QuantizedRowShape& shape,
                           int8_t* codes, int32_t* sums) {
  for (int begin = 0; begin < shape.group; begin += shape.sum_group) {
    I32x16 sum = set1_i32(0);
    for_each_vector(shape.sum_group, [&](int i, int places) {
      const int at = begin + i, n = std::clamp(count - at, 0, places);
      const I32x16 code = to_i32(mul(n > 0 ? load_n(x + at, n) : zero(), set1(inverse)));
      sum = add(sum, code);
      int8_t of_vector[kPanelWidth];
      store_i8(of_vector, code);
      std::memcpy(codes + at, of_vector, static_cast<size_t>(places));
    });
    *sums++ = reduce_add(sum);
  }
}

// As quantize_group, for a full group whose size is a multiple of a line (64). kSumGroup:
// shape.sum_group; 0: one sum for the group.
template <int kSumGroup, typename T>
inline void quantize_lines(const T* x, int group, float inverse, int8_t* codes, int32_t* sums) {
  I32x16 sum = set1_i32(0);
  for (int at = 0; at < group; at += kLineCodes) {
    F32x16 values[kLineCodes / kPanelWidth];
    const T* of_line = x + at;
    for (F32x16& value : values) {
      value = mul(load(of_line), set1(inverse));
      of_line += kPanelWidth;
    }
    const Line line = to_i8(values);
    store_line(codes + at, line);
    if constexpr (kSumGroup == 0) {
      sum = add(sum, sums_of_four(line));
    } else {
      store_sums<kSumGroup / 4>(sums, sums_of_four(line));
      sums += kLineCodes / kSumGroup;
    }
  }
  if constexpr (kSumGroup == 0) *sums = reduce_add(sum);
}

// Quantises all groups of a row. whole_group: quantises a full group (quantize_lines or
// quantize_group).
template <typename T, typename WholeGroup>
inline void quantize_groups(const T* x, const QuantizedRowShape& shape, std::byte* out,
                            const WholeGroup& whole_group) {
  auto* codes = reinterpret_cast<int8_t*>(out);
  auto* scale = reinterpret_cast<float*>(out + shape.scales_offset());
  auto* sums = reinterpret_cast<int32_t*>(out + shape.sums_offset());
  const int sums_of_group = shape.group / shape.sum_group;
  for (int at = 0; at < shape.k; at += shape.group, ++scale, sums += sums_of_group) {
    const int count = std::min(shape.group, shape.k - at);
    *scale = quantized_scale(largest_magnitude(x + at, count));
    if (!(*scale > 0.0f)) {
      std::fill_n(codes + at, shape.group, int8_t{0});
      std::fill_n(sums, sums_of_group, 0);
    } else if (count == shape.group) {
      whole_group(x + at, 1.0f / *scale, codes + at, sums);
    } else {
      quantize_group(x + at, count, 1.0f / *scale, shape, codes + at, sums);
    }
  }
}

template <typename T>
inline void quantize_row_of(const T* x, const QuantizedRowShape& shape, std::byte* out) {
  const auto by_lines = [&]<int kSumGroup>() {
    quantize_groups(x, shape, out,
                    [&](const T* of_group, float inverse, int8_t* codes, int32_t* sums) {
                      quantize_lines<kSumGroup>(of_group, shape.group, inverse, codes, sums);
                    });
  };
  if (shape.group % kLineCodes == 0) {
    if (shape.sum_group == shape.group) return by_lines.template operator()<0>();
    if (shape.sum_group == 32) return by_lines.template operator()<32>();
    if (shape.sum_group == 16) return by_lines.template operator()<16>();
  }
  quantize_groups(x, shape, out,
                  [&](const T* of_group, float inverse, int8_t* codes, int32_t* sums) {
                    quantize_group(of_group, shape.group, inverse, shape, codes, sums);
                  });
}

void quantize_row(Dtype x_dtype, const void* x, const QuantizedRowShape& shape, std::byte* out) {
  if (x_dtype == Dtype::kF32) {
    quantize_row_of(static_cast<const float*>(x), shape, out);
  } else {
    quantize_row_of(static_cast<const Bf16*>(x), shape, out);
  }
}
