// SPDX-License-Identifier: Apache-2.0
//
// The kernels and threads that a rank computes with, and the products of whole batches of rows.
//
// Results of layers are float32. The inputs of products are cast to the dtype of the weights (bf16
// or float32) once, and may then feed several products.
#pragma once

#include <cstdint>

#include "base/aligned_bytes.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace wideep::model {

// Rows ready to be multiplied. Points into the source (float32) or into a Scratch (bf16).
struct Rows {
  const std::byte* data = nullptr;
  size_t stride = 0;  // elements of `dtype` from row to row
  int num_rows = 0;
  int width = 0;
  Dtype dtype = Dtype::kF32;

  size_t row_bytes() const { return stride * dtype_bytes(dtype); }
};

// Memory that grows to the largest use and is kept, so that steady state allocates nothing.
class Scratch {
 public:
  // At least `count` elements, contents undefined. Invalidates earlier pointers from this Scratch.
  template <typename T>
  T* get(size_t count) {
    if (count * sizeof(T) > bytes_.size()) bytes_ = base::AlignedBytes(count * sizeof(T));
    return bytes_.as<T>();
  }

 private:
  base::AlignedBytes bytes_;
};

// x: [num_rows, width] float32, x_stride elements from row to row; on the calling thread.
Rows cast_rows(const kernels::Kernels& kernels, Dtype dtype, const float* x, size_t x_stride,
               int num_rows, int width, Scratch& scratch);

// The arguments of x · wᵀ over all of w, for one thread.
// REQUIRES: x.width == w.k and x.dtype == w.dtype.
kernels::MatmulArgs matmul_args(const Rows& x, const kernels::PackedMatrix& w, float* y,
                                size_t y_stride);

class Compute {
 public:
  Compute(const kernels::Kernels& kernels, base::ThreadPool& pool)
      : kernels_(kernels), pool_(pool) {}

  const kernels::Kernels& kernels() const { return kernels_; }
  base::ThreadPool& pool() const { return pool_; }

  // As cast_rows, over all threads.
  Rows cast(Dtype dtype, const float* x, size_t x_stride, int num_rows, int width,
            Scratch& scratch) const;

  // y[num_rows, w.n] = x · wᵀ, over all threads. y_stride elements from row to row.
  // REQUIRES: x.width == w.k and x.dtype == w.dtype.
  void matmul(const Rows& x, const kernels::PackedMatrix& w, float* y, size_t y_stride) const;

  // y[row] = rms_norm(x[row]) for rows of `width`.
  void rms_norm(const float* x, size_t x_stride, const float* weight, float eps, int num_rows,
                int width, float* y, size_t y_stride) const;

 private:
  const kernels::Kernels& kernels_;
  base::ThreadPool& pool_;
};

}  // namespace wideep::model
