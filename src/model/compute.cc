// SPDX-License-Identifier: Apache-2.0
#include "model/compute.h"

#include "base/check.h"

namespace wideep::model {
namespace {

// A chunk of a product for one thread: 4 panels are what the widest tile takes at once.
constexpr int64_t kPanelsPerChunk = 4;
constexpr int64_t kRowsPerChunk = 16;

}  // namespace

Rows cast_rows(const kernels::Kernels& kernels, Dtype dtype, const float* x, size_t x_stride,
               int num_rows, int width, Scratch& scratch) {
  if (dtype == Dtype::kF32) {
    return {reinterpret_cast<const std::byte*>(x), x_stride, num_rows, width, dtype};
  }
  Bf16* out = scratch.get<Bf16>(static_cast<size_t>(num_rows) * width);
  for (int row = 0; row < num_rows; ++row) {
    kernels.to_bf16(x + row * x_stride, width, out + static_cast<size_t>(row) * width);
  }
  return {reinterpret_cast<const std::byte*>(out), static_cast<size_t>(width), num_rows, width,
          dtype};
}

Rows Compute::cast(Dtype dtype, const float* x, size_t x_stride, int num_rows, int width,
                   Scratch& scratch) const {
  if (dtype == Dtype::kF32) {
    return {reinterpret_cast<const std::byte*>(x), x_stride, num_rows, width, dtype};
  }
  Bf16* out = scratch.get<Bf16>(static_cast<size_t>(num_rows) * width);
  pool_.parallel_for(num_rows, kRowsPerChunk, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels_.to_bf16(x + row * x_stride, width, out + row * width);
    }
  });
  return {reinterpret_cast<const std::byte*>(out), static_cast<size_t>(width), num_rows, width,
          dtype};
}

kernels::MatmulArgs matmul_args(const Rows& x, const kernels::PackedMatrix& w, float* y,
                                size_t y_stride) {
  WIDEEP_CHECK_EQ(x.width, w.k);
  WIDEEP_CHECK(x.dtype == w.dtype);
  return {.m = x.num_rows,
          .x = x.data,
          .x_stride = x.stride,
          .w = w,
          .first_panel = 0,
          .last_panel = w.num_panels(),
          .y = y,
          .y_stride = y_stride};
}

void Compute::matmul(const Rows& x, const kernels::PackedMatrix& w, float* y,
                     size_t y_stride) const {
  if (x.num_rows == 0) return;
  const kernels::MatmulArgs whole = matmul_args(x, w, y, y_stride);
  pool_.parallel_for(w.num_panels(), kPanelsPerChunk, [&](int64_t begin, int64_t end) {
    kernels::MatmulArgs part = whole;
    part.first_panel = static_cast<int>(begin);
    part.last_panel = static_cast<int>(end);
    kernels_.matmul(part);
  });
}

void Compute::rms_norm(const float* x, size_t x_stride, const float* weight, float eps,
                       int num_rows, int width, float* y, size_t y_stride) const {
  pool_.parallel_for(num_rows, kRowsPerChunk, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels_.rms_norm(x + row * x_stride, weight, eps, width, y + row * y_stride);
    }
  });
}

}  // namespace wideep::model
