// SPDX-License-Identifier: Apache-2.0
//
// Slow and obvious: what every other table is measured against, and what runs on any processor.
#include <cmath>
#include <vector>

#include "kernels/tables.h"

namespace wideep::kernels::ref {
namespace {

float element(Dtype dtype, const void* data, size_t index) {
  return dtype == Dtype::kF32 ? static_cast<const float*>(data)[index]
                              : static_cast<float>(static_cast<const Bf16*>(data)[index]);
}

float packed_element(const PackedMatrix& w, int row, int k) {
  const std::byte* panel = w.data + static_cast<size_t>(row / kPanelWidth) * w.panel_bytes();
  const int lane = row % kPanelWidth;
  const size_t index = w.dtype == Dtype::kF32
                           ? static_cast<size_t>(k) * kPanelWidth + lane
                           : (static_cast<size_t>(k / 2) * kPanelWidth + lane) * 2 + k % 2;
  return element(w.dtype, panel, index);
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const int last = std::min(args.last_panel * kPanelWidth, args.w.n);
  for (int row = 0; row < args.m; ++row) {
    for (int column = args.first_panel * kPanelWidth; column < last; ++column) {
      float sum = 0.0f;
      for (int k = 0; k < args.w.k; ++k) {
        const float x = element(args.w.dtype, args.x, row * args.x_stride + k);
        sum = std::fma(x, packed_element(args.w, column, k), sum);
      }
      args.y[row * args.y_stride + column] = sum;
    }
  }
}

namespace {

// One cached element: position p, key/value head g, dimension d.
float cached(const AttentionArgs& args, const std::byte* const* pages, size_t stride, int dim,
             int p, int g, int d) {
  const size_t index = static_cast<size_t>(p % kPageTokens) * stride +
                       static_cast<size_t>(g) * dim + static_cast<size_t>(d);
  return element(args.cache_dtype, pages[p / kPageTokens], index);
}

}  // namespace

void attention(const AttentionArgs& args) {
  std::vector<double> probability(args.num_positions);
  for (int h = 0; h < args.num_heads; ++h) {
    const int g = h / (args.num_heads / args.num_kv_heads);
    double largest = -INFINITY;
    for (int p = 0; p < args.num_positions; ++p) {
      double score = 0.0;
      for (int d = 0; d < args.key_dim; ++d) {
        score += static_cast<double>(args.q[h * args.key_dim + d]) *
                 cached(args, args.key_pages, args.key_stride, args.key_dim, p, g, d);
      }
      probability[p] = score * args.scale;
      largest = std::max(largest, probability[p]);
    }
    double sum = 0.0;
    for (double& p : probability) sum += p = std::exp(p - largest);
    for (int d = 0; d < args.value_dim; ++d) {
      double value = 0.0;
      for (int p = 0; p < args.num_positions; ++p) {
        value += probability[p] *
                 cached(args, args.value_pages, args.value_stride, args.value_dim, p, g, d);
      }
      args.out[h * args.value_dim + d] = static_cast<float>(value / sum);
    }
  }
}

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  double squares = 0.0;
  for (int i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double scale = 1.0 / std::sqrt(squares / n + eps);
  for (int i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * scale * weight[i]);
}

void silu_mul(const float* gate, const float* up, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

void add_scaled(Dtype x_dtype, const void* x, float scale, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = std::fma(scale, element(x_dtype, x, i), y[i]);
}

void to_bf16(const float* x, int n, Bf16* y) {
  for (int i = 0; i < n; ++i) y[i] = Bf16(x[i]);
}

}  // namespace wideep::kernels::ref
