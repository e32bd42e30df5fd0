// SPDX-License-Identifier: Apache-2.0
//
// The one form in which weight matrices are multiplied: panels of kPanelWidth output columns, so
// that the inner loop of a product reads memory strictly forward.
//
//   float32   [panel][k][16]                one cache line is 16 columns at one k
//   bfloat16  [panel][k / 2][16][2]         the pair (k, k + 1) side by side, as vdpbf16ps wants it
//
// Columns beyond N and an odd last k are zero. The packed form of a matrix is the same on every
// instruction set; a rank's slots and a host pool hold it, so that moving an expert is a plain
// copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "base/dtype.h"

namespace wideep::kernels {

// 16 float32 lanes: one AVX-512 register, two AVX2 registers, one cache line.
inline constexpr int kPanelWidth = 16;

// Where a packed matrix lies; does not own the bytes.
struct PackedMatrix {
  Dtype dtype = Dtype::kF32;        // kF32 or kBf16
  int n = 0;                        // output features (rows of the checkpoint's [n, k] matrix)
  int k = 0;                        // input features
  const std::byte* data = nullptr;  // 64-byte aligned, packed_bytes(dtype, n, k) long

  int num_panels() const { return (n + kPanelWidth - 1) / kPanelWidth; }
  size_t panel_bytes() const;
};

size_t packed_bytes(Dtype dtype, int n, int k);

// Packs rows of float32 [n, k] (row stride k) into `out`, rounding to bf16 where dtype says so.
// REQUIRES: out is 64-byte aligned and packed_bytes(dtype, n, k) long.
PackedMatrix pack_matrix(Dtype dtype, int n, int k, const float* rows, std::byte* out);

// 64-byte aligned memory that starts zeroed.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(size_t num_bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace wideep::kernels
