// SPDX-License-Identifier: Apache-2.0
//
// From tensors, as a checkpoint has them, to what the kernels read: packed matrices, rows,
// float32 vectors.
//
// Tensors are checked when they are asked for, so that the first error in the order of a model's
// tensors is the one reported; large ones are then loaded all together, by all threads, in run().
// No copy of them is made on the way. After an error the loader is of no more use.
//
//   WeightLoader loader(checkpoint, format, progress, &pool);
//   WIDEEP_TRY_ASSIGN(Matrix down, loader.matrix("down.weight", n, k));
//   loader.run();                                       // `down` may be used from here on
//
// Thread safety: one thread; the progress callback is called from any thread, one at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/thread_pool.h"
#include "kernels/packed_matrix.h"
#include "weights/load_queue.h"
#include "weights/tensor_source.h"
#include "wideep/status.h"

namespace wideep::weights {

// A packed matrix with its memory.
struct Matrix {
  base::AlignedBytes bytes;
  kernels::PackedMatrix packed;
};

class WeightLoader {
 public:
  // format: of packed matrices. progress: told the tensors' bytes read, as they are.
  // pool: does the work together with the caller; null: the caller alone.
  WeightLoader(
      const TensorSource& tensors, kernels::WeightFormat format,
      std::function<void(uint64_t)> progress = [](uint64_t) {}, base::ThreadPool* pool = nullptr)
      : tensors_(tensors), format_(format), progress_(std::move(progress)), pool_(pool) {}

  kernels::WeightFormat format() const { return format_; }

  // All elements of a tensor as float32, row-major, at once: for small ones.
  Result<std::vector<float>> floats(const std::string& name,
                                    const std::vector<int64_t>& shape) const;

  // ---- loaded by run(): until then the memory must stay where it is ----

  // A tensor of shape [n, k] row by row, its elements float32 or bf16.
  // REQUIRES: dtype is kF32 or kBf16; out holds n · k elements of it.
  Status rows(const std::string& name, int n, int k, Dtype dtype, std::byte* out) const;

  // A tensor of shape [shape.n, shape.k], packed into memory of the caller's.
  // REQUIRES: out is 64-byte aligned and shape.bytes() long.
  Status pack(const std::string& name, const kernels::PackedShape& shape, std::byte* out) const;

  // Tensors of shape [n_each, k], stacked along n, in memory of their own.
  Result<Matrix> matrix(const std::vector<std::string>& names, const std::vector<int>& n_each,
                        int k) const;
  Result<Matrix> matrix(const std::string& name, int n, int k) const {
    return matrix(name, n, k, format_);
  }
  Result<Matrix> matrix(const std::string& name, int n, int k, kernels::WeightFormat format) const;

  void run() const;

  // Packs float32 rows [n, k] made by the caller, at once.
  static Matrix pack_rows(kernels::WeightFormat format, const float* rows, int n, int k);

 private:
  // Packs tensors of shape [n_each, shape.k] as if they were one of shape [shape.n, shape.k].
  Status pack_stacked(const std::vector<std::string>& names, const std::vector<int>& n_each,
                      const kernels::PackedShape& shape, std::byte* out) const;

  const TensorSource& tensors_;
  kernels::WeightFormat format_;
  std::function<void(uint64_t)> progress_;
  base::ThreadPool* pool_;
  std::unique_ptr<LoadQueue> queue_ = std::make_unique<LoadQueue>();
};

}  // namespace wideep::weights
