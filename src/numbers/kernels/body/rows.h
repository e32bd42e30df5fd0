// SPDX-License-Identifier: Apache-2.0
//
// The row operations of kernel_list.inc in F32x16, for every instruction set. Included inside a
// region.
#pragma once

// y[i] = scale · x[i]. y may be x.
inline void scaled_copy(const float* x, float scale, int n, float* y) {
  for_each_vector(
      n, [&](int i, int count) { store_n(y + i, mul(load_n(x + i, count), set1(scale)), count); });
}

void scale_row(float scale, int n, float* x) { scaled_copy(x, scale, n, x); }

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  const float scale = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
  if (weight == nullptr) return scaled_copy(x, scale, n, y);
  for_each_vector(n, [&](int i, int count) {
    store_n(y + i, mul(mul(load_n(x + i, count), set1(scale)), load_n(weight + i, count)), count);
  });
}

// y first holds x without the mean of the first pass.
void layer_norm(const float* x, const LayerNorm& norm, int n, float* y) {
  F32x16 sum = zero(), squares = zero(), rest = zero();
  for_each_vector(n, [&](int i, int count) { sum = add(sum, load_n(x + i, count)); });
  const auto size = static_cast<float>(n);
  const F32x16 mean = set1(reduce_add(sum) / size);
  for_each_vector(n, [&](int i, int count) {
    store_n(y + i, sub(load_n(x + i, count), mean), count);
    const F32x16 left = load_n(y + i, count);
    rest = add(rest, left);
    squares = fma(left, left, squares);
  });
  const float shift = reduce_add(rest) / size;
  const float variance = std::max(reduce_add(squares) / size - shift * shift, 0.0f);
  const F32x16 shifts = set1(shift), scale = set1(1.0f / std::sqrt(variance + norm.eps));
  for_each_vector(n, [&](int i, int count) {
    const F32x16 normed = mul(sub(load_n(y + i, count), shifts), scale);
    const F32x16 bias = norm.bias == nullptr ? zero() : load_n(norm.bias + i, count);
    store_n(y + i, fma(normed, load_n(norm.weight + i, count), bias), count);
  });
}

void l2_normalize(const float* x, float eps, int n, float* y) {
  scaled_copy(x, 1.0f / std::sqrt(dot(x, x, n) + eps), n, y);
}

void silu(const float* x, int n, float* y) {
  for_each_vector(n, [&](int i, int count) { store_n(y + i, silu(load_n(x + i, count)), count); });
}

void silu_multiply(const float* gate, const float* x, int n, float* y) {
  for_each_vector(n, [&](int i, int count) {
    store_n(y + i, mul(silu(load_n(gate + i, count)), load_n(x + i, count)), count);
  });
}

void sigmoid_multiply(const float* gate, const float* x, int n, float* y) {
  for_each_vector(n, [&](int i, int count) {
    store_n(y + i, mul(sigmoid(load_n(gate + i, count)), load_n(x + i, count)), count);
  });
}

// Plain C++, which the compiler vectorises with the region's instructions.
template <typename T>
inline void square_positive(int n, T* x) {
  for (int i = 0; i < n; ++i) {
    const float value = static_cast<float>(x[i]);
    const float positive = value < 0.0f ? 0.0f : value;
    x[i] = T(positive * positive);
  }
}

void square_relu(Dtype dtype, int n, void* x) {
  if (dtype == Dtype::kBf16) {
    square_positive(n, static_cast<Bf16*>(x));
  } else {
    square_positive(n, static_cast<float*>(x));
  }
}

// Without fused multiply-add (the build forbids contraction), so that all tables have the same
// bits.
void rotate(const float* cos_sin, int dim, bool interleaved, float* x) {
  const int half = dim / 2;
  const float* cosines = cos_sin;
  const float* sines = cos_sin + half;
  if (interleaved) {
    for (int i = 0; i < half; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * cosines[i] - b * sines[i];
      x[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
    return;
  }
  for (int i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cosines[i] - b * sines[i];
    x[half + i] = b * cosines[i] + a * sines[i];
  }
}

template <typename T>
inline void add_scaled_rows(const T* x, float scale, int n, float* y) {
  for_each_vector(n, [&](int i, int count) {
    store_n(y + i, fma(set1(scale), load_n(x + i, count), load_n(y + i, count)), count);
  });
}

void add_scaled(Dtype x_dtype, const void* x, float scale, int n, float* y) {
  if (x_dtype == Dtype::kBf16) {
    add_scaled_rows(static_cast<const Bf16*>(x), scale, n, y);
  } else {
    add_scaled_rows(static_cast<const float*>(x), scale, n, y);
  }
}

// Two passes: the maximum in vectors, then its first index. A vocabulary has 10^5 logits.
int argmax(const float* x, int n) {
  constexpr int kAtOnce = 4;
  F32x16 lanes[kAtOnce];
  for (F32x16& of : lanes) of = set1(-INFINITY);
  // If an operand is NaN, max returns the second operand, so NaN is ignored.
  int i = 0;
  for (; i + kAtOnce * kPanelWidth <= n; i += kAtOnce * kPanelWidth) {
    for (int v = 0; v < kAtOnce; ++v) lanes[v] = max(load(x + i + v * kPanelWidth), lanes[v]);
  }
  float largest = reduce_max(max(max(lanes[0], lanes[1]), max(lanes[2], lanes[3])));
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  int at = 0;
  while (at + kPanelWidth <= n && !any_equal(load(x + at), set1(largest))) at += kPanelWidth;
  while (at < n && x[at] != largest) ++at;
  return at < n ? at : 0;
}

// float32 within a block is fast, double between blocks keeps the precision of long sums.
double sum_of_exp(const float* x, float largest, int n) {
  constexpr int kBlock = 64 * kPanelWidth;
  double total = 0.0;
  for (int begin = 0; begin < n; begin += kBlock) {
    F32x16 sum = zero();
    for_each_vector(std::min(kBlock, n - begin), [&](int i, int count) {
      const F32x16 e = exp(sub(load_n(x + begin + i, count), set1(largest)));
      if (count == kPanelWidth) {
        sum = add(sum, e);
        return;
      }
      float lanes[kPanelWidth];
      store(lanes, e);
      for (int lane = 0; lane < count; ++lane) total += double{lanes[lane]};
    });
    total += double{reduce_add(sum)};
  }
  return total;
}

float int4_error(const float* x, int n, float scale, float inverse) {
  const F32x16 shift = set1(kRoundSmallShift);
  F32x16 sums = zero();
  for_each_vector(n, [&](int i, int count) {
    const F32x16 value = load_n(x + i, count);
    const F32x16 rounded = sub(add(mul(value, set1(inverse)), shift), shift);
    const F32x16 code = min(max(rounded, set1(-8.0f)), set1(7.0f));
    const F32x16 off = sub(value, mul(set1(scale), code));
    sums = add(sums, mul(off, off));
  });
  return reduce_add(sums);
}

// Plain C++, which the compiler vectorises with the region's instructions.
void to_bf16(const float* x, int n, Bf16* y) {
  for (int i = 0; i < n; ++i) y[i] = Bf16(x[i]);
}
