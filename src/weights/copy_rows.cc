// SPDX-License-Identifier: Apache-2.0
#include "weights/copy_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "weights/checkpoint.h"

namespace wideep::weights {

using formats::TensorEntry;

void copy_rows(const TensorEntry& entry, int64_t begin, int64_t end, Dtype dtype, std::byte* out) {
  const int64_t k = entry.shape[1];
  if (entry.dtype == dtype) {
    const size_t row_bytes = static_cast<size_t>(k) * dtype_bytes(dtype);
    const auto rows = entry.bytes.subspan(static_cast<size_t>(begin) * row_bytes,
                                          static_cast<size_t>(end - begin) * row_bytes);
    if (!rows.empty()) std::memcpy(out, rows.data(), rows.size());
    return;
  }
  // One row at a time: a row of float32 values is all the working memory that it takes.
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t i = begin; i < end; ++i) {
    to_float32(entry, i * k, k, row.data());
    if (dtype == Dtype::kF32) {
      out = std::copy_n(reinterpret_cast<const std::byte*>(row.data()), row.size() * sizeof(float),
                        out);
    } else {
      // memcpy, because `out` need not be aligned.
      for (const float value : row) {
        const Bf16 rounded(value);
        std::memcpy(out, &rounded, sizeof(rounded));
        out += sizeof(rounded);
      }
    }
  }
}

}  // namespace wideep::weights
