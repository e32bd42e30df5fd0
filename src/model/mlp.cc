// SPDX-License-Identifier: Apache-2.0
#include "model/mlp.h"

namespace wideep::model {
namespace {

// In place: the first half of each row becomes silu(gate) · up.
void activate(const kernels::Kernels& kernels, float* gate_up, int intermediate, int64_t begin,
              int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* gate = gate_up + row * 2 * intermediate;
    kernels.silu_mul(gate, gate + intermediate, intermediate, gate);
  }
}

}  // namespace

void mlp_forward(const Compute& compute, const weights::GatedMlp& mlp, const Rows& x, float* y,
                 size_t y_stride, MlpScratch& scratch) {
  const int width = mlp.gate_up.n, intermediate = mlp.down.k;
  float* gate_up = scratch.gate_up.get<float>(static_cast<size_t>(x.num_rows) * width);
  compute.matmul(x, mlp.gate_up, gate_up, width);
  compute.pool().parallel_for(x.num_rows, 8, [&](int64_t begin, int64_t end) {
    activate(compute.kernels(), gate_up, intermediate, begin, end);
  });
  compute.matmul(compute.cast(x.dtype, gate_up, width, x.num_rows, intermediate, scratch.cast),
                 mlp.down, y, y_stride);
}

void mlp_forward_alone(const kernels::Kernels& kernels, const weights::GatedMlp& mlp, const Rows& x,
                       float* y, size_t y_stride, MlpScratch& scratch) {
  const int width = mlp.gate_up.n, intermediate = mlp.down.k;
  float* gate_up = scratch.gate_up.get<float>(static_cast<size_t>(x.num_rows) * width);
  kernels.matmul(matmul_args(x, mlp.gate_up, gate_up, width));
  activate(kernels, gate_up, intermediate, 0, x.num_rows);
  const Rows h =
      cast_rows(kernels, x.dtype, gate_up, width, x.num_rows, intermediate, scratch.cast);
  kernels.matmul(matmul_args(h, mlp.down, y, y_stride));
}

}  // namespace wideep::model
