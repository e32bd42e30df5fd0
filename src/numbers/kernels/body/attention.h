// SPDX-License-Identifier: Apache-2.0
//
// attention.h in F32x16, for every instruction set. Included inside a region, after
// attention_<isa>.h and body/kv_page.h.
//
// The outer loop goes over pages, the inner one over strips of a few rows:
//   score       queries × keys of the page: a strip's scores stay in registers
//   weigh       updates the running maximum, and turns scores into softmax weights
//   add_values  corrects the output for the new maximum, then adds weights × values
// Every lane and row of a strip is its own chain of additions, so a row's bits do not depend on the
// strip.
#pragma once

// Softmax is computed with powers of two: log2(e) is multiplied into the scale.
inline constexpr float kLog2E = 1.44269504f;
// The score of a masked position, and the initial running maximum. They are so far apart that a
// masked position has weight zero even before the first unmasked one.
inline constexpr float kMasked = -1e30f;
inline constexpr float kNoneYet = -1e20f;

// 2ˣ for x <= 0, within 1e-7 (relative): x = n + r, |r| <= 1/2, polynomial of degree 5 for 2ʳ,
// fitted for the least relative error with 2⁰ = 1 exact.
inline F32x16 exp2(F32x16 x) {
  const F32x16 n = round_to_nearest(x);
  const F32x16 r = sub(x, n);
  F32x16 p = set1(0.001326472614891827f);
  for (const float coefficient : {0.009671512991189957f, 0.05550733581185341f, 0.24022242426872253f,
                                  0.6931470036506653f, 1.0f}) {
    p = fma(p, r, set1(coefficient));
  }
  return scale_down(p, n);
}

inline F32x16 multiply_step(const float* x, const float* w, F32x16 acc) {
  return fma(set1(*x), load(w), acc);
}
inline F32x16 multiply_step(const Bf16* x, const Bf16* w, F32x16 acc) {
  return multiply_pair(x, load_line(w), acc);
}
template <typename T>
inline constexpr int kStep = 4 / sizeof(T);  // elements in 4 bytes

// The right operand of a product: `stride` elements from step to step, panels adjacent. next: the
// same operand in the next page, which is prefetched; or null.
template <typename T>
struct Panels {
  const T* data;
  size_t stride;
  int steps;
  const std::byte* next;
  int next_lines;  // of 64 bytes, per step
};

// acc[r][p] += Σ_s x[r][s] · w[s][p], s ascending.
template <int Rows, int Width, typename T>
[[gnu::always_inline]] inline void multiply_tile(const T* x, size_t x_stride, const Panels<T>& w,
                                                 int panel, F32x16 (&acc)[Rows][Width]) {
  const T* data = w.data + panel * kPanelWidth * kStep<T>;
  for (int s = 0; s < w.steps; ++s) {
    if (w.next != nullptr) prefetch_lines(w.next + 64 * w.next_lines * s, w.next_lines);
    for (int r = 0; r < Rows; ++r) {
      for (int p = 0; p < Width; ++p) {
        acc[r][p] = multiply_step(x + r * x_stride + s * kStep<T>,
                                  data + s * w.stride + p * kPanelWidth * kStep<T>, acc[r][p]);
      }
    }
  }
}

// The state of a block's rows between pages, in the caller's scratch.
template <typename T>
struct RowState {
  T* q;             // [rows, key steps]
  float* out;       // [rows, padded value_dim]
  float* sums;      // [rows, 16] sums of weights, by lane
  float* largest;   // [rows] running maximum of scores, as exponents of two
  std::byte* keys;  // unpacked or widened panels of the current page
  std::byte* values;
  std::byte* wide;  // fp8 rows widened to bf16
  size_t q_stride;
  size_t out_stride;
};

inline size_t aligned_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

template <typename T>
inline RowState<T> row_state(const AttentionArgs& args) {
  const size_t rows = static_cast<size_t>(args.num_rows());
  RowState<T> state;
  state.q_stride = static_cast<size_t>(padded_key_dim(args.key_dim));
  state.out_stride = static_cast<size_t>(padded_value_dim(args.value_dim));
  std::byte* at = args.scratch;
  const auto take = [&](size_t bytes) {
    std::byte* taken = at;
    at += aligned_bytes(bytes);
    return taken;
  };
  state.q = reinterpret_cast<T*>(take(rows * state.q_stride * sizeof(T)));
  state.out = reinterpret_cast<float*>(take(rows * state.out_stride * sizeof(float)));
  state.sums = reinterpret_cast<float*>(take(rows * kPanelWidth * sizeof(float)));
  state.largest = reinterpret_cast<float*>(take(rows * sizeof(float)));
  state.keys = take(kPageTokens * state.q_stride * sizeof(T));
  state.values = take(kPageTokens * state.out_stride * sizeof(T));
  state.wide = take(kPageTokens * args.row_stride * sizeof(T));
  return state;
}

inline const float* query_of(const AttentionArgs& args, int row) {
  return args.q + static_cast<size_t>(row / args.num_heads) * args.q_token_stride +
         static_cast<size_t>(row % args.num_heads) * args.q_head_stride;
}

template <typename T>
inline void start_rows(const AttentionArgs& args, const RowState<T>& state) {
  for (int row = 0; row < args.num_rows(); ++row) {
    const float* q = query_of(args, row);
    T* to = state.q + row * state.q_stride;
    for (int d = 0; d < args.key_dim; ++d) to[d] = T(q[d]);
    if (args.key_dim % 2 != 0) to[args.key_dim] = T();
    float* sums = state.sums + row * kPanelWidth;
    store(sums, zero());
    state.largest[row] = kNoneYet;
    if (args.sinks != nullptr) {
      state.largest[row] = args.sinks[row % args.num_heads] * kLog2E;
      sums[0] = 1.0f;
    }
  }
  std::memset(static_cast<void*>(state.out), 0,
              static_cast<size_t>(args.num_rows()) * state.out_stride * sizeof(float));
}

template <typename T>
inline void finish_rows(const AttentionArgs& args, const RowState<T>& state) {
  for (int row = 0; row < args.num_rows(); ++row) {
    float* out = args.out + static_cast<size_t>(row / args.num_heads) * args.out_token_stride +
                 static_cast<size_t>(row % args.num_heads) * args.out_head_stride;
    const float* sums = state.out + row * state.out_stride;
    const F32x16 divisor = set1(reduce_add(load(state.sums + row * kPanelWidth)));
    for_each_vector(args.value_dim, [&](int i, int n) {
      // + 0: a sum of zeros has one sign, however many masked zeros came after.
      store_n(out + i, add(div(load(sums + i), divisor), zero()), n);
    });
  }
}

// The panels of a page: in the cache itself, or unpacked into the state's memory.
template <typename T>
struct PagePanels {
  const T* keys;
  const T* values;
  size_t value_stride;
};

template <typename T>
inline PagePanels<T> panels_of(const AttentionArgs& args, const RowState<T>& state,
                               const KvPage& page, int count) {
  const size_t value_stride = state.out_stride * kStep<T>;
  const bool fp8 = args.cache_dtype == Dtype::kF8E4M3;
  auto* keys = reinterpret_cast<T*>(state.keys);
  auto* values = reinterpret_cast<T*>(state.values);
  if (args.form == CacheForm::kPanels) {
    if (!fp8) {
      return {reinterpret_cast<const T*>(page.keys), reinterpret_cast<const T*>(page.values),
              value_stride};
    }
    const size_t steps = static_cast<size_t>(count + 1) / 2;
    widen_fp8(page.keys, kPageTokens * state.q_stride, reinterpret_cast<Bf16*>(keys));
    widen_fp8(page.values, steps * value_stride, reinterpret_cast<Bf16*>(values));
    return {keys, values, value_stride};
  }
  PageRows rows{.dtype = product_dtype(args.cache_dtype),
                .rows = page.keys,
                .stride = args.row_stride,
                .count = count,
                .dim = args.key_dim};
  if (fp8) {
    widen_fp8(page.keys, static_cast<size_t>(count) * args.row_stride,
              reinterpret_cast<Bf16*>(state.wide));
    rows.rows = state.wide;
  }
  pack_keys(rows, state.keys);
  if (sizeof(T) == sizeof(float)) {  // float32 rows have the layout of value panels already
    return {keys, reinterpret_cast<const T*>(page.keys), args.row_stride};
  }
  rows.dim = args.value_dim;
  pack_values(rows, state.values);
  return {keys, values, value_stride};
}

// A bit mask of the positions before `end` in a page.
inline uint64_t positions_below(int end) {
  return end >= kPageTokens ? ~uint64_t{0} : end <= 0 ? 0 : (uint64_t{1} << end) - 1;
}

// A bit mask of the positions of a page that the token attends to. base: the page's first position.
inline uint64_t attended(const AttentionArgs& args, int token, int base) {
  const int position = args.first_position + token;
  const int first = first_visible(args.window, args.chunk, position);
  return positions_below(position + 1 - base) & ~positions_below(first - base);
}

// Converts the scores of a strip over the first Width panels of a page to softmax weights.
// correction: factors of the rows' earlier sums and outputs. weights: [Rows, kPageTokens], of which
// the positions of those panels are written.
template <int Rows, int Width, typename T>
[[gnu::always_inline]] inline void weigh(const AttentionArgs& args, const RowState<T>& state,
                                         int row, const uint64_t* masks, F32x16 (&s)[Rows][Width],
                                         float* correction, T* weights) {
  const F32x16 scale = set1(args.scale * kLog2E);
  float difference[kPanelWidth] = {};
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Width; ++p) {
      s[r][p] = mul(s[r][p], scale);
      if (masks != nullptr) {
        const auto bits = static_cast<uint32_t>(masks[r] >> (kPanelWidth * p)) & 0xffffu;
        s[r][p] = keep_lanes(s[r][p], bits, kMasked);
      }
    }
    F32x16 largest = max(s[r][0], s[r][1]);
    for (int p = 2; p < Width; ++p) largest = max(largest, s[r][p]);
    const float before = state.largest[row + r];
    state.largest[row + r] = std::max(before, reduce_max(largest));
    difference[r] = before - state.largest[row + r];
  }
  store(correction, exp2(load(difference)));  // of all rows in one vector
  for (int r = 0; r < Rows; ++r) {
    const F32x16 largest = set1(state.largest[row + r]);
    for (int p = 0; p < Width; ++p) s[r][p] = exp2(sub(s[r][p], largest));
    F32x16 sum = add(s[r][0], s[r][1]);
    if constexpr (Width == 4) sum = add(sum, add(s[r][2], s[r][3]));
    float* sums = state.sums + (row + r) * kPanelWidth;
    store(sums, fma(load(sums), set1(correction[r]), sum));
    T* to = weights + r * kPageTokens;
    for (int p = 0; p < Width; p += 2) {
      if constexpr (sizeof(T) == sizeof(float)) {
        store(to + p * kPanelWidth, s[r][p]);
        store(to + (p + 1) * kPanelWidth, s[r][p + 1]);
      } else {
        store_weights(to + p * kPanelWidth, s[r][p], s[r][p + 1]);
      }
    }
  }
}

// Width: panels of positions, all 4 of a page or only the first 2 if the rest is masked.
template <int Rows, int Width, typename T>
inline void score(const AttentionArgs& args, const RowState<T>& state, int row, Panels<T> keys,
                  const uint64_t* masks, float* correction, T* weights) {
  constexpr int kTile = std::min(Width, kStripPanels);
  const T* q = state.q + row * state.q_stride;
  F32x16 s[Rows][Width];
  for (int panel = 0; panel < Width; panel += kTile) {
    F32x16 acc[Rows][kTile];
    for (auto& accs : acc) {
      for (auto& a : accs) a = zero();
    }
    multiply_tile<Rows, kTile>(q, state.q_stride, keys, panel, acc);
    keys.next = nullptr;  // fetched once
    for (int r = 0; r < Rows; ++r) {
      for (int p = 0; p < kTile; ++p) s[r][panel + p] = acc[r][p];
    }
  }
  weigh<Rows, Width>(args, state, row, masks, s, correction, weights);
}

// out = out · correction + weights · values, for Width panels of value elements.
template <int Rows, int Width, typename T>
inline void add_values(const RowState<T>& state, int row, const Panels<T>& values, int panel,
                       const float* correction, const T* weights) {
  float* out = state.out + row * state.out_stride + panel * kPanelWidth;
  F32x16 acc[Rows][Width];
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Width; ++p) {
      acc[r][p] = mul(load(out + r * state.out_stride + p * kPanelWidth), set1(correction[r]));
    }
  }
  multiply_tile<Rows, Width>(weights, kPageTokens, values, panel, acc);
  for (int r = 0; r < Rows; ++r) {
    for (int p = 0; p < Width; ++p) store(out + r * state.out_stride + p * kPanelWidth, acc[r][p]);
  }
}

// The page that all strips of a block work on.
template <typename T>
struct PageView {
  int base;          // its first position
  int num_gathered;  // or, if not 0: it has this many rows that were selected for the only token
  Panels<T> keys;
  Panels<T> values;  // steps: set per strip
};

template <int Rows, typename T>
inline void strip(const AttentionArgs& args, const RowState<T>& state, const PageView<T>& page,
                  int row) {
  uint64_t masks[Rows];
  uint64_t all = ~uint64_t{0}, any = 0;
  for (int r = 0; r < Rows; ++r) {
    masks[r] = page.num_gathered != 0 ? positions_below(page.num_gathered)
                                      : attended(args, (row + r) / args.num_heads, page.base);
    all &= masks[r];
    any |= masks[r];
  }
  if (any == 0) return;
  // Positions after `any` are not multiplied, so their weights need not be written.
  alignas(64) T weights[Rows * kPageTokens];
  alignas(64) float correction[kPanelWidth];
  const uint64_t* mask = ~all == 0 ? nullptr : masks;
  if (any >> (kPageTokens / 2) != 0) {
    score<Rows, 4>(args, state, row, page.keys, mask, correction, weights);
  } else {
    score<Rows, 2>(args, state, row, page.keys, mask, correction, weights);
  }
  Panels<T> values = page.values;
  values.steps = (64 - __builtin_clzll(any) + kStep<T> - 1) / kStep<T>;
  const int num_panels = static_cast<int>(state.out_stride) / kPanelWidth;
  int panel = 0;
  for (; panel + kStripPanels <= num_panels; panel += kStripPanels) {
    add_values<Rows, kStripPanels>(state, row, values, panel, correction, weights);
    values.next = nullptr;
  }
  for (; panel < num_panels; ++panel) {
    add_values<Rows, 1>(state, row, values, panel, correction, weights);
    values.next = nullptr;
  }
}

// Computes a strip. Returns the row after it.
template <int Rows, typename T>
inline int next_strip(const AttentionArgs& args, const RowState<T>& state, PageView<T>* page,
                      int row) {
  strip<Rows>(args, state, *page, row);
  page->keys.next = page->values.next = nullptr;  // fetched once
  return row + Rows;
}

// Computes the rows from `row` to `num_rows` on a page.
template <typename T>
inline void strips(const AttentionArgs& args, const RowState<T>& state, PageView<T> page, int row,
                   int num_rows) {
  // 8 rows left are two strips of 4, not of 6 and 2.
  while (num_rows - row >= kStripRows && num_rows - row != 8) {
    row = next_strip<kStripRows>(args, state, &page, row);
  }
  while (num_rows - row >= 4) row = next_strip<4>(args, state, &page, row);
  while (num_rows - row >= 2) row = next_strip<2>(args, state, &page, row);
  while (row < num_rows) row = next_strip<1>(args, state, &page, row);
}

// A view of a page of which nothing else is prefetched.
template <typename T>
inline PageView<T> view_of(const AttentionArgs& args, const PagePanels<T>& panels) {
  return {.base = 0,
          .num_gathered = 0,
          .keys = {.data = panels.keys,
                   .stride = kPageTokens * kStep<T>,
                   .steps = (args.key_dim + kStep<T> - 1) / kStep<T>,
                   .next = nullptr,
                   .next_lines = 0},
          .values = {.data = panels.values,
                     .stride = panels.value_stride,
                     .steps = 0,
                     .next = nullptr,
                     .next_lines = 0}};
}

// Dense attention over the given pages.
template <typename T>
inline void attend_to_pages(const AttentionArgs& args, const RowState<T>& state) {
  const int last = args.first_position + args.num_tokens - 1;
  const int first = first_visible(args.window, args.chunk, args.first_position);
  for (int i = std::max(0, first / kPageTokens - args.first_page); i < args.num_pages; ++i) {
    const int base = (args.first_page + i) * kPageTokens;
    if (base > last) break;
    const int count = std::min(kPageTokens, last + 1 - base);
    const PagePanels<T> panels = panels_of(args, state, args.pages[i], count);
    PageView<T> page = view_of(args, panels);
    page.base = base;
    // The next page, fetched line by line while this one is multiplied.
    if (i + 1 < args.num_pages) {
      const size_t step_bytes = kStep<T> * dtype_bytes(args.cache_dtype);
      page.keys.next = args.pages[i + 1].keys;
      if (args.form == CacheForm::kRows) {
        page.keys.next_lines =
            static_cast<int>(args.row_stride * step_bytes * kPageTokens / kStep<T> / 64) /
                page.keys.steps +
            1;
      } else {
        page.keys.next_lines = static_cast<int>(kPageTokens * step_bytes / 64);
        page.values.next = args.pages[i + 1].values;
        page.values.next_lines = static_cast<int>(state.out_stride * step_bytes / 64);
      }
    }
    strips(args, state, page, 0, args.num_rows());
  }
}

// Copies selected rows of the cache, widened from fp8, to consecutive rows of state.wide.
template <typename T>
inline void gather_rows(const AttentionArgs& args, const RowState<T>& state,
                        const int32_t* selected, int count) {
  const size_t row_bytes = args.row_stride * dtype_bytes(args.cache_dtype);
  std::byte* to = state.wide;
  for (int i = 0; i < count; ++i, to += args.row_stride * sizeof(T)) {
    const int page = selected[i] / kPageTokens - args.first_page;
    const int slot = selected[i] % kPageTokens;
    const std::byte* row = args.pages[page].keys + static_cast<size_t>(slot) * row_bytes;
    if (args.cache_dtype == Dtype::kF8E4M3) {
      widen_fp8(row, args.row_stride, reinterpret_cast<Bf16*>(to));
    } else {
      std::memcpy(to, row, row_bytes);
    }
  }
}

// Sparse attention: each token's own rows, gathered into pages that all its heads share.
template <typename T>
inline void attend_to_selected(const AttentionArgs& args, const RowState<T>& state) {
  AttentionArgs gathered = args;
  gathered.cache_dtype = product_dtype(args.cache_dtype);
  for (int token = 0; token < args.num_tokens; ++token) {
    for (int i = 0; i < args.num_selected[token]; i += kPageTokens) {
      const int count = std::min(kPageTokens, args.num_selected[token] - i);
      gather_rows(args, state, args.selected[token] + i, count);
      const KvPage rows{.keys = state.wide, .values = nullptr};
      PageView<T> page = view_of(args, panels_of(gathered, state, rows, count));
      page.num_gathered = count;
      strips(args, state, page, token * args.num_heads, (token + 1) * args.num_heads);
    }
  }
}

template <typename T>
inline void attend(const AttentionArgs& args) {
  const RowState<T> state = row_state<T>(args);
  if (args.start) start_rows(args, state);
  if (args.selected != nullptr) {
    attend_to_selected(args, state);
  } else {
    attend_to_pages(args, state);
  }
  if (args.finish) finish_rows(args, state);
}

void attention(const AttentionArgs& args) {
  if (args.cache_dtype == Dtype::kF32) {
    attend<float>(args);
  } else {
    attend<Bf16>(args);
  }
}
