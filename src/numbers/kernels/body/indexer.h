// SPDX-License-Identifier: Apache-2.0
//
// indexer.h in F32x16, for every instruction set. Included inside a region, after body/attention.h.
//
// Page by page: its keys are turned into panels, of which every lane is a position. Strips of a
// token's heads are multiplied with them like queries of attention; each strip then adds its heads
// to the scores, which stay in registers for a few panels of positions.
#pragma once

// The query rows of one token, a head each, with the heads' weights and the least that a product
// counts as.
template <typename T>
struct HeadRows {
  const T* q = nullptr;
  size_t q_stride = 0;
  const float* weights = nullptr;
  F32x16 least;
};

// Adds Rows heads from `first` on to the sums of Width panels of positions.
template <int Rows, int Width, typename T>
[[gnu::always_inline]] inline void add_heads(const HeadRows<T>& heads, int first,
                                             const Panels<T>& keys, int panel, float* sums) {
  const T* q = heads.q + first * heads.q_stride;
  const float* weights = heads.weights + first;
  F32x16 products[Rows][Width];
  for (auto& of_head : products) {
    for (F32x16& product : of_head) product = zero();
  }
  multiply_tile<Rows, Width>(q, heads.q_stride, keys, panel, products);
  for (int p = 0; p < Width; ++p) {
    float* at = sums + (panel + p) * kPanelWidth;
    F32x16 sum = load(at);
    for (int r = 0; r < Rows; ++r) {
      sum = fma(set1(weights[r]), max(products[r][p], heads.least), sum);
    }
    store(at, sum);
  }
}

// The sums of all heads of a token over the page's first `count` positions.
template <typename T>
inline void score_page(const HeadRows<T>& heads, int num_heads, const Panels<T>& keys, int count,
                       float* sums) {
  std::memset(sums, 0, kPageTokens * sizeof(float));
  for (int panel = 0; panel * kPanelWidth < count; panel += kStripPanels) {
    int head = 0;
    for (; head + kStripRows <= num_heads; head += kStripRows) {
      add_heads<kStripRows, kStripPanels>(heads, head, keys, panel, sums);
    }
    for (; head < num_heads; ++head) {
      add_heads<1, kStripPanels>(heads, head, keys, panel, sums);
    }
  }
}

template <typename T>
inline void index_pages(const IndexArgs& args) {
  const size_t q_stride = static_cast<size_t>(padded_key_dim(args.dim));
  auto* q = reinterpret_cast<T*>(args.scratch);
  std::byte* panels =
      args.scratch + aligned_bytes(static_cast<size_t>(args.num_rows()) * q_stride * sizeof(T));
  for (int row = 0; row < args.num_rows(); ++row) {
    const float* from = args.q + static_cast<size_t>(row / args.num_heads) * args.q_token_stride +
                        static_cast<size_t>(row % args.num_heads) * args.q_head_stride;
    T* to = q + row * q_stride;
    for (int d = 0; d < args.dim; ++d) to[d] = T(from[d]);
    if (args.dim % 2 != 0) to[args.dim] = T();
  }
  const F32x16 least = args.rectifies ? zero() : set1(-std::numeric_limits<float>::infinity());
  const int last = args.first_position + args.num_tokens - 1;
  for (int i = 0; i < args.num_pages; ++i) {
    const int base = (args.first_page + i) * kPageTokens;
    if (base > last) break;
    pack_keys({.dtype = args.cache_dtype,
               .rows = args.pages[i].keys,
               .stride = args.row_stride,
               .count = std::min(kPageTokens, last + 1 - base),
               .dim = args.dim},
              panels);
    const Panels<T> keys{.data = reinterpret_cast<const T*>(panels),
                         .stride = kPageTokens * kStep<T>,
                         .steps = (args.dim + kStep<T> - 1) / kStep<T>,
                         .next = nullptr,
                         .next_lines = 0};
    for (int t = 0; t < args.num_tokens; ++t) {
      const int count = std::min(kPageTokens, args.first_position + t + 1 - base);
      if (count <= 0) continue;
      const size_t token = static_cast<size_t>(t);
      alignas(64) float sums[kPageTokens];
      score_page<T>({.q = q + token * static_cast<size_t>(args.num_heads) * q_stride,
                     .q_stride = q_stride,
                     .weights = args.weights + token * args.weights_stride,
                     .least = least},
                    args.num_heads, keys, count, sums);
      std::memcpy(args.scores + token * args.scores_stride + base, sums,
                  static_cast<size_t>(count) * sizeof(float));
    }
  }
}

void index_scores(const IndexArgs& args) {
  if (args.cache_dtype == Dtype::kF32) {
    index_pages<float>(args);
  } else {
    index_pages<Bf16>(args);
  }
}
