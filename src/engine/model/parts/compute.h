// SPDX-License-Identifier: Apache-2.0
//
// The kernels and threads of a rank, and matrix products over batches of rows.
//
// Results of layers are float32. Inputs of products ("operands") are cast once to the form that the
// format of the weights requires (kernels/weight_format.h), and can then be used in several
// products.
//
// Thread safety: one thread calls, all threads of the pool compute. A Scratch belongs to one
// thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/aligned_bytes.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"

namespace wideep::model {

using Panels = kernels::PanelRange;
inline Panels all_panels(const kernels::PackedMatrix& w) { return {0, w.shape.num_panels()}; }

// One of several products of the same rows. y: [num_rows, n] float32 with y_stride elements from
// row to row; only the columns of `panels` are written.
struct Product {
  const kernels::PackedMatrix* w = nullptr;
  float* y = nullptr;
  size_t y_stride = 0;
  Panels panels;
  const float* bias = nullptr;  // [n], or null: none
};

// Operands of products with matrices of one format and k. Points into the source or into a Scratch.
struct Rows {
  kernels::InputRows input;
  int num_rows = 0;
  int width = 0;
  kernels::WeightFormat for_format = kernels::WeightFormat::kF32;
};

// Float32 or bf16 rows anywhere in memory.
struct SourceRows {
  kernels::InputRows rows;
  int num_rows = 0;
  int width = 0;
  Dtype dtype = Dtype::kF32;

  // Rows [begin, end).
  SourceRows part(int64_t begin, int64_t end) const {
    return {rows.from(static_cast<int>(begin)), static_cast<int>(end - begin), width, dtype};
  }
};
// x: [num_rows, width] float32, x_stride elements from row to row.
inline SourceRows float_rows(const float* x, size_t x_stride, int num_rows, int width) {
  return {{x, x_stride * sizeof(float), nullptr}, num_rows, width, Dtype::kF32};
}

// Memory that grows to the largest request and is kept, so that steady state allocates nothing.
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

// Whether rows of this dtype must be cast before they can be multiplied with w.
bool needs_cast(const kernels::PackedShape& w, Dtype dtype);
// Bytes of an operand row for w.
size_t operand_bytes(const kernels::PackedShape& w);
// Casts `source` to operands for w. out: [num_rows] of operand_bytes(w).
void cast_rows_to(const kernels::Kernels& kernels, const kernels::PackedShape& w,
                  const SourceRows& source, std::byte* out);

// `source` as operands for w, cast on the calling thread. Rows that need no cast are not copied.
Rows cast_rows(const kernels::Kernels& kernels, const kernels::PackedShape& w,
               const SourceRows& source, Scratch& scratch);

// The kernel's arguments for x · wᵀ over all columns, on one thread. y: [num_rows, n] float32,
// y_stride elements from row to row. REQUIRES: x was cast for w.
kernels::MatmulArgs matmul_args(const Rows& x, const kernels::PackedMatrix& w, float* y,
                                size_t y_stride);

// How many panels of each of num_matrices such matrices one task has, for products with at most
// max_rows rows. For single rows as many as take about a microsecond to read.
int panels_at_once(const kernels::PackedShape& w, int max_rows, int num_matrices);

class Compute {
 public:
  Compute(const kernels::Kernels& kernels, base::ThreadPool& pool)
      : kernels_(kernels), pool_(pool) {}

  const kernels::Kernels& kernels() const { return kernels_; }
  base::ThreadPool& pool() const { return pool_; }

  // As cast_rows, on all threads.
  Rows cast(const kernels::PackedShape& w, const SourceRows& source, Scratch& scratch) const;

  // y[num_rows, n] = x · wᵀ, on all threads. y_stride elements from row to row.
  // REQUIRES: x was cast for w.
  void matmul(const Rows& x, const kernels::PackedMatrix& w, float* y, size_t y_stride) const;
  // Several products of the same rows, with one barrier of the threads at the end.
  void matmul(const Rows& x, std::span<const Product> products) const;

  // y[row] = rms_norm(x[row]). x, y: [num_rows, weight.size()], which may be the same memory.
  void rms_norm(const float* x, int num_rows, std::span<const float> weight, float eps,
                float* y) const;

 private:
  void matmul_rows(const Rows& x, std::span<const Product> products) const;

  const kernels::Kernels& kernels_;
  base::ThreadPool& pool_;
};

}  // namespace wideep::model
