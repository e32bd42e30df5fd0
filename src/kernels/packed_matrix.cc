// SPDX-License-Identifier: Apache-2.0
#include "kernels/packed_matrix.h"

#include <cstring>

#include "base/check.h"

namespace wideep::kernels {
namespace {

size_t bytes_of_panel(Dtype dtype, int k) {
  const size_t padded_k = dtype == Dtype::kBf16 ? (static_cast<size_t>(k) + 1) / 2 * 2 : k;
  return padded_k * kPanelWidth * dtype_bytes(dtype);
}

}  // namespace

size_t PackedMatrix::panel_bytes() const { return bytes_of_panel(dtype, k); }

size_t packed_bytes(Dtype dtype, int n, int k) {
  return static_cast<size_t>(PackedMatrix{dtype, n, k}.num_panels()) * bytes_of_panel(dtype, k);
}

PackedMatrix pack_matrix(Dtype dtype, int n, int k, const float* rows, std::byte* out) {
  WIDEEP_CHECK(dtype == Dtype::kF32 || dtype == Dtype::kBf16);
  const PackedMatrix packed{dtype, n, k, out};
  std::memset(out, 0, packed_bytes(dtype, n, k));
  for (int row = 0; row < n; ++row) {
    std::byte* panel = out + static_cast<size_t>(row / kPanelWidth) * packed.panel_bytes();
    const int lane = row % kPanelWidth;
    const float* source = rows + static_cast<size_t>(row) * k;
    for (int i = 0; i < k; ++i) {
      if (dtype == Dtype::kF32) {
        reinterpret_cast<float*>(panel)[static_cast<size_t>(i) * kPanelWidth + lane] = source[i];
      } else {
        const size_t pair = (static_cast<size_t>(i / 2) * kPanelWidth + lane) * 2 + i % 2;
        reinterpret_cast<Bf16*>(panel)[pair] = Bf16(source[i]);
      }
    }
  }
  return packed;
}

}  // namespace wideep::kernels
