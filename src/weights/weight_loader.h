// SPDX-License-Identifier: Apache-2.0
//
// From a checkpoint's tensors to what the kernels read: packed matrices of one dtype, float32
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
  // dtype: of packed matrices, kBf16 or kF32. progress: told the checkpoint bytes read, as they
  // are.
  WeightLoader(
      const Checkpoint& checkpoint, Dtype dtype,
      std::function<void(uint64_t)> progress = [](uint64_t) {})
      : checkpoint_(checkpoint), dtype_(dtype), progress_(std::move(progress)) {}

  Dtype dtype() const { return dtype_; }

  // All elements of a tensor as float32, row-major.
  Result<std::vector<float>> floats(const std::string& name,
                                    const std::vector<int64_t>& shape) const;

  // Tensors of shape [n_each, k], stacked along n and packed into memory of the caller's.
  // REQUIRES: out is 64-byte aligned and packed_bytes(dtype, n_each × names, k) long.
  Status pack(const std::vector<std::string>& names, int n_each, int k, std::byte* out) const;

  // The same into memory of its own.
  Result<Matrix> matrix(const std::vector<std::string>& names, int n_each, int k) const;
  Result<Matrix> matrix(const std::string& name, int n, int k) const {
    return matrix(std::vector<std::string>{name}, n, k);
  }

  // Packs float32 rows [n, k] made by the caller.
  static Matrix pack_rows(Dtype dtype, const float* rows, int n, int k);

 private:
  Result<std::vector<float>> stacked(const std::vector<std::string>& names, int n_each,
                                     int k) const;

  const Checkpoint& checkpoint_;
  Dtype dtype_;
  std::function<void(uint64_t)> progress_;
};

}  // namespace wideep::weights
