// SPDX-License-Identifier: Apache-2.0
//
// From tensors, as a checkpoint has them, to what the kernels read: packed matrices, all in one
// format or each as it is stored, rows, float32 vectors.
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
#include <optional>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/thread_pool.h"
#include "kernels/packed_matrix.h"
#include "weights/load_queue.h"
#include "weights/stored_matrix.h"
#include "wideep/status.h"

namespace wideep::weights {

// A packed matrix with its memory.
struct Matrix {
  base::AlignedBytes bytes;
  kernels::PackedMatrix packed;
};

class WeightLoader {
 public:
  // format: of packed matrices; nothing: as they are stored, floats in bf16. progress: told the
  // tensors' bytes read, as they are. pool: does the work together with the caller; null: the
  // caller alone.
  WeightLoader(
      const TensorSource& tensors, std::optional<kernels::WeightFormat> format,
      std::function<void(uint64_t)> progress = [](uint64_t) {}, base::ThreadPool* pool = nullptr)
      : tensors_(tensors), format_(format), progress_(std::move(progress)), pool_(pool) {}

  // In what activations travel, and results are cached, beside these weights.
  Dtype row_dtype() const {
    return kernels::row_dtype(format_.value_or(kernels::WeightFormat::kBf16));
  }

  // The form in which a matrix with k columns is packed.
  MatrixForm form(const std::string& name, int k) const;
  // The form of all of them: with the finest of their groups, which part the others; bf16 where
  // matrices are packed as they are stored, and their formats differ.
  struct NameAndWidth {
    std::string name;
    int k;
  };
  MatrixForm common_form(const std::vector<NameAndWidth>& matrices) const;

  // All elements of a tensor as float32, row-major, at once: for small ones. Codes become what they
  // stand for.
  Result<std::vector<float>> floats(const std::string& name,
                                    const std::vector<int64_t>& shape) const;

  // ---- loaded by run(): until then the memory must stay where it is ----

  // A tensor of shape [n, k] row by row, its elements float32 or bf16.
  // REQUIRES: dtype is kF32 or kBf16; out holds n · k elements of it.
  Status rows(const std::string& name, int n, int k, Dtype dtype, std::byte* out) const;

  // A tensor of shape [shape.n, shape.k], packed into memory of the caller's. Returns the scale of
  // the whole matrix.
  // REQUIRES: out is 64-byte aligned and shape.bytes() long.
  Result<float> pack(const std::string& name, const kernels::PackedShape& shape,
                     std::byte* out) const {
    return pack(name, shape, {0, shape.num_panels()}, out);
  }
  // Only these panels, the bits that they have in the whole matrix. out: of the first of them.
  Result<float> pack(const std::string& name, const kernels::PackedShape& shape,
                     const kernels::PanelRange& panels, std::byte* out) const;

  // A tensor of shape [n, k] in memory of its own, in form(name, k) or the one given.
  Result<Matrix> matrix(const std::string& name, int n, int k) const {
    return matrix(name, n, k, form(name, k));
  }
  Result<Matrix> matrix(const std::string& name, int n, int k, const MatrixForm& form) const;

  Status run() const;

  // Packs float32 rows [n, k] made by the caller, at once.
  static Matrix pack_rows(kernels::WeightFormat format, const float* rows, int n, int k);

 private:
  const TensorSource& tensors_;
  std::optional<kernels::WeightFormat> format_;
  std::function<void(uint64_t)> progress_;
  base::ThreadPool* pool_;
  std::unique_ptr<LoadQueue> queue_ = std::make_unique<LoadQueue>();
};

}  // namespace wideep::weights
