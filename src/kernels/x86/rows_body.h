// SPDX-License-Identifier: Apache-2.0
//
// The row operations of kernels.h, written once over F32x16. Included inside a region.
#pragma once

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  const float scale = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
  for_each_vector(n, [&](int i, int count) {
    store_n(y + i, mul(mul(load_n(x + i, count), set1(scale)), load_n(weight + i, count)), count);
  });
}

void silu_mul(const float* gate, const float* up, int n, float* y) {
  for_each_vector(n, [&](int i, int count) {
    const F32x16 g = load_n(gate + i, count);
    const F32x16 silu = div(g, add(set1(1.0f), exp(sub(zero(), g))));
    store_n(y + i, mul(silu, load_n(up + i, count)), count);
  });
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

// Plain C++ that compilers turn into the region's vector instructions: integer rounding, no order
// to keep.
void to_bf16(const float* x, int n, Bf16* y) {
  for (int i = 0; i < n; ++i) y[i] = Bf16(x[i]);
}
