// SPDX-License-Identifier: Apache-2.0
//
// The kernels, written once over F32x16. Each instruction set's file opens its target region and a
// namespace of its own, includes its simd_*.h and then this.
//
// A tail of fewer than 16 elements goes through a zero-filled buffer and the same vector code, so
// that an element's value never depends on where in a row the vectors happen to end.
#pragma once

// ---- exp ----

// eˣ for x in [−87, 88] (clamped), within 2 ulp: x = n·ln2 + r, |r| ≤ ln2/2, polynomial of degree 6
// for eʳ with the Taylor coefficients 1/k! (remainder below r⁷/5040 ≈ 1.2e-7 of eʳ).
inline F32x16 exp(F32x16 x) {
  x = min(max(x, set1(-87.0f)), set1(88.0f));
  const F32x16 n = round_to_nearest(mul(x, set1(1.44269504f)));
  // ln2 in two parts: n · 0.693359375 is exact.
  F32x16 r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  F32x16 p = set1(1.0f / 720.0f);
  for (const float coefficient : {1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f}) {
    p = fma(p, r, set1(coefficient));
  }
  return scale_by_power_of_two(p, n);
}

// ---- tails ----

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

// ---- matmul ----

// One k of one column panel: acc += x[k] · w[k].
inline F32x16 multiply_one(const float* x, const float* w, F32x16 acc) {
  return fma(set1(*x), load(w), acc);
}

template <int Rows, int Panels>
inline void store_tile(const MatmulArgs& args, int row, int panel,
                       const F32x16 (&acc)[Rows][Panels]) {
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Panels; ++p) {
      const int column = (panel + p) * kPanelWidth;
      store_n(args.y + (row + r) * args.y_stride + column, acc[r][p],
              std::min(kPanelWidth, args.w.n - column));
    }
  }
}

// Rows × Panels accumulators in registers, k innermost and ascending.
template <int Rows, int Panels>
inline void tile_f32(const MatmulArgs& args, int row, int panel) {
  const float* x = static_cast<const float*>(args.x) + row * args.x_stride;
  const size_t panel_floats = args.w.panel_bytes() / sizeof(float);
  const float* w = reinterpret_cast<const float*>(args.w.data) + panel * panel_floats;
  F32x16 acc[Rows][Panels];
  for (auto& accs : acc) {
    for (auto& a : accs) a = zero();
  }
  for (int k = 0; k < args.w.k; ++k) {
    for (int p = 0; p < Panels; ++p) {
      const float* weights = w + p * panel_floats + static_cast<size_t>(k) * kPanelWidth;
      for (int r = 0; r < Rows; ++r) {
        acc[r][p] = multiply_one(x + r * args.x_stride + k, weights, acc[r][p]);
      }
    }
  }
  store_tile<Rows, Panels>(args, row, panel, acc);
}

template <int Rows, int Panels>
inline void tile_bf16(const MatmulArgs& args, int row, int panel) {
  const Bf16* x = static_cast<const Bf16*>(args.x) + row * args.x_stride;
  const size_t panel_values = args.w.panel_bytes() / sizeof(Bf16);
  const Bf16* w = reinterpret_cast<const Bf16*>(args.w.data) + panel * panel_values;
  F32x16 acc[Rows][Panels];
  for (auto& accs : acc) {
    for (auto& a : accs) a = zero();
  }
  const int whole = args.w.k / 2 * 2;
  for (int k = 0; k < whole; k += 2) {
    for (int p = 0; p < Panels; ++p) {
      const Bf16* weights = w + p * panel_values + static_cast<size_t>(k) * kPanelWidth;
      for (int r = 0; r < Rows; ++r) {
        acc[r][p] = multiply_pair(x + r * args.x_stride + k, weights, acc[r][p]);
      }
    }
  }
  if (whole < args.w.k) {  // odd k: the packed partner is zero, x's is made so
    for (int r = 0; r < Rows; ++r) {
      const Bf16 pair[2] = {x[r * args.x_stride + whole], Bf16()};
      for (int p = 0; p < Panels; ++p) {
        const Bf16* weights = w + p * panel_values + static_cast<size_t>(whole) * kPanelWidth;
        acc[r][p] = multiply_pair(pair, weights, acc[r][p]);
      }
    }
  }
  store_tile<Rows, Panels>(args, row, panel, acc);
}

template <int Rows, int Panels>
inline void tile(const MatmulArgs& args, int row, int panel) {
  if (args.w.dtype == Dtype::kBf16) {
    tile_bf16<Rows, Panels>(args, row, panel);
  } else {
    tile_f32<Rows, Panels>(args, row, panel);
  }
}

template <int Panels>
inline void matmul_panels(const MatmulArgs& args, int panel) {
  int row = 0;
  for (; row + kTileRows <= args.m; row += kTileRows) tile<kTileRows, Panels>(args, row, panel);
  for (; row + 2 <= args.m; row += 2) tile<2, Panels>(args, row, panel);
  for (; row < args.m; ++row) tile<1, Panels>(args, row, panel);
}

inline void matmul(const MatmulArgs& args) {
  int panel = args.first_panel;
  for (; panel + kTilePanels <= args.last_panel; panel += kTilePanels) {
    matmul_panels<kTilePanels>(args, panel);
  }
  for (; panel < args.last_panel; ++panel) matmul_panels<1>(args, panel);
}

// ---- attention ----

template <typename T>
inline float dot(const float* a, const T* b, int n) {
  F32x16 sum = zero();
  for_each_vector(
      n, [&](int i, int count) { sum = fma(load_n(a + i, count), load_n(b + i, count), sum); });
  return reduce_add(sum);
}

// Where an online softmax stands after some pages: largest score so far, sum of exponentials.
struct Running {
  float largest;
  float sum;
};

// Turns scores[0, count) into exp(score − largest), folds their sum into `running`, and returns
// what the output gathered so far must be multiplied by.
inline float fold_scores(float* scores, int count, bool first_page, Running* running) {
  float largest = first_page ? scores[0] : running->largest;
  for (int p = 0; p < count; ++p) largest = std::max(largest, scores[p]);
  F32x16 sum = zero();
  for_each_vector(count, [&](int i, int n) {
    const F32x16 e = exp(sub(load_n(scores + i, n), set1(largest)));
    store_n(scores + i, e, n);
    sum = add(sum, load_n(scores + i, n));  // read back: the lanes beyond a tail count as zero
  });
  float correction = 0.0f;
  if (!first_page) {
    float lanes[kPanelWidth];
    store(lanes, exp(set1(running->largest - largest)));
    correction = lanes[0];
  }
  running->sum = (first_page ? 0.0f : running->sum * correction) + reduce_add(sum);
  running->largest = largest;
  return correction;
}

// out = out · correction + Σ_p weights[p] · value[p], in ascending p for every element.
template <typename T>
inline void add_values(const T* values, size_t stride, const float* weights, int count, int dim,
                       float correction, bool first_page, float* out) {
  for_each_vector(dim, [&](int i, int n) {
    F32x16 acc = first_page ? zero() : mul(load_n(out + i, n), set1(correction));
    for (int p = 0; p < count; ++p) {
      acc = fma(set1(weights[p]), load_n(values + p * stride + i, n), acc);
    }
    store_n(out + i, acc, n);
  });
}

template <typename T>
inline void attention_head(const AttentionArgs& args, int head) {
  const int kv_head = head / (args.num_heads / args.num_kv_heads);
  const float* q = args.q + static_cast<size_t>(head) * args.key_dim;
  float* out = args.out + static_cast<size_t>(head) * args.value_dim;
  float scores[kPageTokens];
  Running running{};
  for (int begin = 0; begin < args.num_positions; begin += kPageTokens) {
    const int page = begin / kPageTokens;
    const int count = std::min(kPageTokens, args.num_positions - begin);
    const T* keys = reinterpret_cast<const T*>(args.key_pages[page]) + kv_head * args.key_dim;
    const T* values = reinterpret_cast<const T*>(args.value_pages[page]) + kv_head * args.value_dim;
    for (int p = 0; p < count; ++p) {
      scores[p] = dot(q, keys + p * args.key_stride, args.key_dim) * args.scale;
    }
    const float correction = fold_scores(scores, count, begin == 0, &running);
    add_values(values, args.value_stride, scores, count, args.value_dim, correction, begin == 0,
               out);
  }
  const F32x16 sum = set1(running.sum);
  for_each_vector(args.value_dim,
                  [&](int i, int n) { store_n(out + i, div(load_n(out + i, n), sum), n); });
}

inline void attention(const AttentionArgs& args) {
  for (int head = 0; head < args.num_heads; ++head) {
    if (args.cache_dtype == Dtype::kBf16) {
      attention_head<Bf16>(args, head);
    } else {
      attention_head<float>(args, head);
    }
  }
}

// ---- row operations ----

inline void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  const float scale = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
  for_each_vector(n, [&](int i, int count) {
    store_n(y + i, mul(mul(load_n(x + i, count), set1(scale)), load_n(weight + i, count)), count);
  });
}

inline void silu_mul(const float* gate, const float* up, int n, float* y) {
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

inline void add_scaled(Dtype x_dtype, const void* x, float scale, int n, float* y) {
  if (x_dtype == Dtype::kBf16) {
    add_scaled_rows(static_cast<const Bf16*>(x), scale, n, y);
  } else {
    add_scaled_rows(static_cast<const float*>(x), scale, n, y);
  }
}

// Plain C++ that compilers turn into the region's vector instructions: integer rounding, no order
// to keep.
inline void to_bf16(const float* x, int n, Bf16* y) {
  for (int i = 0; i < n; ++i) y[i] = Bf16(x[i]);
}
