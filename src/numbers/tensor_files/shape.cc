// SPDX-License-Identifier: Apache-2.0
#include "tensor_files/shape.h"

#include <fmt/format.h>

namespace wideep::tensor_files {

std::optional<int64_t> num_bytes(const std::vector<int64_t>& shape, Dtype dtype) {
  int64_t product = 1;
  for (const int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(product, dimension, &product)) return std::nullopt;
  }
  const auto element_bytes = static_cast<int64_t>(dtype_bytes(dtype));
  if (__builtin_mul_overflow(product, element_bytes, &product)) return std::nullopt;
  return product;
}

std::string describe(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace wideep::tensor_files
