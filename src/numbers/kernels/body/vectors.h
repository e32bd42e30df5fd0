// SPDX-License-Identifier: Apache-2.0
//
// Operations that all kernels use, in addition to those of simd.h: exp, tails, dot products.
// Included inside a region (avx2/begin.h, avx512/begin.h).
//
// A tail of fewer than 16 elements is copied to a zero-filled buffer and computed by the same
// vector code, so an element's value does not depend on its place in the vector.
#pragma once

// eˣ for x in [−87, 88] (clamped), within 2 ulp: x = n·ln2 + r, |r| ≤ ln2/2, polynomial of degree 6
// for eʳ with the Taylor coefficients 1/k! (remainder below r⁷/5040 ≈ 1.2e-7 of eʳ).
inline F32x16 exp(F32x16 x) {
  x = min(max(x, set1(-87.0f)), set1(88.0f));
  const F32x16 n = round_to_nearest(mul(x, set1(1.44269504f)));
  // ln2 in two parts (Cody–Waite), so that r keeps its precision: n · 0.693359375 is exact.
  F32x16 r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  F32x16 p = set1(1.0f / 720.0f);
  for (const float coefficient : {1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f}) {
    p = fma(p, r, set1(coefficient));
  }
  return scale_by_power_of_two(p, n);
}

inline F32x16 sigmoid(F32x16 x) { return div(set1(1.0f), add(set1(1.0f), exp(sub(zero(), x)))); }
inline F32x16 silu(F32x16 x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

template <typename T>
inline F32x16 load_first(const T* p, int n) {
  T buffer[kPanelWidth] = {};
  std::memcpy(buffer, p, static_cast<size_t>(n) * sizeof(T));
  return load(buffer);
}
inline void store_first(float* p, F32x16 v, int n) {
  float buffer[kPanelWidth];
  store(buffer, v);
  std::memcpy(p, buffer, static_cast<size_t>(n) * sizeof(float));
}

// Calls step(i, 16) for every whole vector of [0, n) and step(i, rest) for the tail.
template <typename Step>
inline void for_each_vector(int n, Step step) {
  int i = 0;
  for (; i + kPanelWidth <= n; i += kPanelWidth) step(i, kPanelWidth);
  if (i < n) step(i, n - i);
}
template <typename T>
inline F32x16 load_n(const T* p, int n) {
  return n == kPanelWidth ? load(p) : load_first(p, n);
}
inline void store_n(float* p, F32x16 v, int n) {
  if (n == kPanelWidth) {
    store(p, v);
  } else {
    store_first(p, v, n);
  }
}

template <typename T>
inline float dot(const float* a, const T* b, int n) {
  F32x16 sum = zero();
  for_each_vector(
      n, [&](int i, int count) { sum = fma(load_n(a + i, count), load_n(b + i, count), sum); });
  return reduce_add(sum);
}
