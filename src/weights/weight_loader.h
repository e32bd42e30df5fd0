// SPDX-License-Identifier: Apache-2.0
//
// From a checkpoint's tensors to what the kernels read: packed matrices of one format, float32
// vectors.
//
// Thread safety: the functions may be called from several threads; the progress callback may then
// be called from several too.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "kernels/packed_matrix.h"
#include "weights/checkpoint.h"
#include "wideep/status.h"

namespace wideep::weights {

// A packed matrix with its memory.
struct Matrix {
  base::AlignedBytes bytes;
  kernels::PackedMatrix packed;
};

class WeightLoader {
 public:
  // format: of packed matrices. progress: told the checkpoint bytes read, as they are.
  WeightLoader(
      const Checkpoint& checkpoint, kernels::WeightFormat format,
      std::function<void(uint64_t)> progress = [](uint64_t) {})
      : checkpoint_(checkpoint), format_(format), progress_(std::move(progress)) {}

  kernels::WeightFormat format() const { return format_; }

  // All elements of a tensor as float32, row-major.
  Result<std::vector<float>> floats(const std::string& name,
                                    const std::vector<int64_t>& shape) const;

  // A tensor of shape [shape.n, shape.k], packed into memory of the caller's.
  // REQUIRES: out is 64-byte aligned and shape.bytes() long.
  Status pack(const std::string& name, const kernels::PackedShape& shape, std::byte* out) const;

  // Tensors of shape [n_each, k], stacked along n, in memory of their own.
  Result<Matrix> matrix(const std::vector<std::string>& names, const std::vector<int>& n_each,
                        int k) const;
  Result<Matrix> matrix(const std::string& name, int n, int k) const {
    return matrix(std::vector<std::string>{name}, {n}, k);
  }

  // Packs float32 rows [n, k] made by the caller.
  static Matrix pack_rows(kernels::WeightFormat format, const float* rows, int n, int k);

 private:
  const Checkpoint& checkpoint_;
  kernels::WeightFormat format_;
  std::function<void(uint64_t)> progress_;
};

}  // namespace wideep::weights
