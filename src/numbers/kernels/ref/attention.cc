// SPDX-License-Identifier: Apache-2.0
//
// Reference of attention.h, indexer.h and kv_page.h: double precision, one element at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/tables.h"

namespace wideep::kernels::ref {
namespace {

size_t key_index(Dtype dtype, int dim, int position) {
  const int step = panel_step(dtype);
  return (static_cast<size_t>(dim / step) * kPageTokens + position) * step + dim % step;
}

size_t value_index(Dtype dtype, int padded_dim, int dim, int position) {
  const int step = panel_step(dtype);
  return (static_cast<size_t>(position / step) * padded_dim + dim) * step + position % step;
}

float load(Dtype dtype, const std::byte* data, size_t index) {
  if (dtype == Dtype::kF32) return reinterpret_cast<const float*>(data)[index];
  if (dtype == Dtype::kBf16) return static_cast<float>(reinterpret_cast<const Bf16*>(data)[index]);
  return static_cast<float>(reinterpret_cast<const F8E4M3*>(data)[index]);
}

void store(Dtype dtype, float x, std::byte* data, size_t index) {
  if (dtype == Dtype::kF32) {
    reinterpret_cast<float*>(data)[index] = x;
  } else if (dtype == Dtype::kBf16) {
    reinterpret_cast<Bf16*>(data)[index] = Bf16(x);
  } else {
    reinterpret_cast<F8E4M3*>(data)[index] = F8E4M3(x);
  }
}

float cached_key(const AttentionArgs& args, const KvPage& page, int dim, int position) {
  const size_t index = args.form == CacheForm::kRows
                           ? static_cast<size_t>(position) * args.row_stride + dim
                           : key_index(args.cache_dtype, dim, position);
  return load(args.cache_dtype, page.keys, index);
}

float cached_value(const AttentionArgs& args, const KvPage& page, int dim, int position) {
  if (args.form == CacheForm::kRows) return cached_key(args, page, dim, position);
  const int padded = padded_value_dim(args.value_dim);
  return load(args.cache_dtype, page.values, value_index(args.cache_dtype, padded, dim, position));
}

// A row's state of the online softmax: [0] largest score, [1] sum of weights, [2 ...] output.
double* row_state(const AttentionArgs& args, int row) {
  return reinterpret_cast<double*>(args.scratch) +
         static_cast<size_t>(row) * static_cast<size_t>(args.value_dim + 2);
}

void start_row(const AttentionArgs& args, int row) {
  double* state = row_state(args, row);
  std::fill(state, state + args.value_dim + 2, 0.0);
  state[0] = -1e300;
  if (args.sinks == nullptr) return;
  // A sink is a score without a value: it only adds e^0 to the denominator, relative to itself.
  state[0] = args.sinks[row % args.num_heads];
  state[1] = 1.0;
}

double score(const AttentionArgs& args, const float* q, const KvPage& page, int position) {
  double sum = 0.0;
  for (int d = 0; d < args.key_dim; ++d) {
    const float query = args.cache_dtype == Dtype::kF32 ? q[d] : static_cast<float>(Bf16(q[d]));
    sum += static_cast<double>(query) * cached_key(args, page, d, position);
  }
  return sum * args.scale;
}

// Folds positions of a page into the row.
void add_page(const AttentionArgs& args, int row, const KvPage& page,
              std::span<const int> positions) {
  const float* q = args.q + row / args.num_heads * args.q_token_stride +
                   row % args.num_heads * args.q_head_stride;
  double* state = row_state(args, row);
  double scores[kPageTokens];
  double largest = state[0];
  for (const int p : positions) {
    scores[p] = score(args, q, page, p);
    largest = std::max(largest, scores[p]);
  }
  // The maximum may have grown: sum and output so far are relative to the old one.
  const double correction = std::exp(state[0] - largest);
  state[0] = largest;
  for (int i = 1; i < args.value_dim + 2; ++i) state[i] *= correction;
  for (const int p : positions) {
    const double weight = std::exp(scores[p] - largest);
    const double rounded = args.cache_dtype == Dtype::kF32
                               ? weight
                               : static_cast<float>(Bf16(static_cast<float>(weight)));
    state[1] += weight;
    for (int d = 0; d < args.value_dim; ++d) {
      state[2 + d] += rounded * cached_value(args, page, d, p);
    }
  }
}

// The positions of a page, relative to its first one, that the token attends to.
std::vector<int> attended(const AttentionArgs& args, int token, int base) {
  std::vector<int> positions;
  if (args.selected != nullptr) {
    for (int i = 0; i < args.num_selected[token]; ++i) {
      const int p = args.selected[token][i] - base;
      if (p >= 0 && p < kPageTokens) positions.push_back(p);
    }
    return positions;
  }
  const int last = args.first_position + token;
  const int first = first_visible(args.window, args.chunk, last);
  for (int p = std::max(first - base, 0); p < std::min(last + 1 - base, kPageTokens); ++p) {
    positions.push_back(p);
  }
  return positions;
}

}  // namespace

void attention(const AttentionArgs& args) {
  for (int row = 0; row < args.num_rows(); ++row) {
    const int token = row / args.num_heads, head = row % args.num_heads;
    if (args.start) start_row(args, row);
    for (int i = 0; i < args.num_pages; ++i) {
      const int base = (args.first_page + i) * kPageTokens;
      const std::vector<int> positions = attended(args, token, base);
      if (!positions.empty()) add_page(args, row, args.pages[i], positions);
    }
    if (!args.finish) continue;
    const double* state = row_state(args, row);
    float* out = args.out + token * args.out_token_stride + head * args.out_head_stride;
    for (int d = 0; d < args.value_dim; ++d) out[d] = static_cast<float>(state[2 + d] / state[1]);
  }
}

void store_key(Dtype dtype, const float* x, int dim, int slot, std::byte* panel) {
  for (int d = 0; d < dim; ++d) store(dtype, x[d], panel, key_index(dtype, d, slot));
  if (dtype != Dtype::kF32 && dim % 2 != 0) store(dtype, 0.0f, panel, key_index(dtype, dim, slot));
}

void store_value(Dtype dtype, const float* x, int dim, int slot, std::byte* panel) {
  const int padded = padded_value_dim(dim);
  for (int d = 0; d < dim; ++d) {
    store(dtype, x[d], panel, value_index(dtype, padded, d, slot));
    if (dtype == Dtype::kF32 || slot % 2 != 0) continue;
    store(dtype, 0.0f, panel, value_index(dtype, padded, d, slot + 1));
  }
}

void store_row(Dtype dtype, const float* x, int dim, std::byte* row) {
  for (int d = 0; d < dim; ++d) store(dtype, x[d], row, d);
}

void pack_keys(const PageRows& page, std::byte* panel) {
  const int padded = page.dtype == Dtype::kF32 ? page.dim : padded_key_dim(page.dim);
  for (int p = 0; p < page.count; ++p) {
    for (int d = 0; d < padded; ++d) {
      const float x = d < page.dim ? load(page.dtype, page.rows, p * page.stride + d) : 0.0f;
      store(page.dtype, x, panel, key_index(page.dtype, d, p));
    }
  }
}

void pack_values(const PageRows& page, std::byte* panel) {
  const int padded = padded_value_dim(page.dim);
  const int count = page.dtype == Dtype::kF32 ? page.count : (page.count + 1) / 2 * 2;
  for (int p = 0; p < count; ++p) {
    for (int d = 0; d < page.dim; ++d) {
      const float x = p < page.count ? load(page.dtype, page.rows, p * page.stride + d) : 0.0f;
      store(page.dtype, x, panel, value_index(page.dtype, padded, d, p));
    }
  }
}

void index_scores(const IndexArgs& args) {
  for (int t = 0; t < args.num_tokens; ++t) {
    for (int i = 0; i < args.num_pages; ++i) {
      const int base = (args.first_page + i) * kPageTokens;
      const int end = std::min(args.first_position + t + 1 - base, kPageTokens);
      for (int p = 0; p < end; ++p) {
        double sum = 0.0;
        for (int h = 0; h < args.num_heads; ++h) {
          const float* q = args.q + t * args.q_token_stride + h * args.q_head_stride;
          double product = 0.0;
          for (int d = 0; d < args.dim; ++d) {
            const float query =
                args.cache_dtype == Dtype::kF32 ? q[d] : static_cast<float>(Bf16(q[d]));
            product += static_cast<double>(query) *
                       load(args.cache_dtype, args.pages[i].keys, p * args.row_stride + d);
          }
          const double counted = args.rectifies ? std::max(product, 0.0) : product;
          sum += args.weights[t * args.weights_stride + h] * counted;
        }
        args.scores[t * args.scores_stride + base + p] = static_cast<float>(sum);
      }
    }
  }
}

void widen_fp8(const std::byte* fp8, size_t count, Bf16* out) {
  for (size_t i = 0; i < count; ++i) out[i] = Bf16(load(Dtype::kF8E4M3, fp8, i));
}

}  // namespace wideep::kernels::ref
