// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace wideep::tensor_files {

// The bytes of a tensor; none if a dimension is negative or a product, taken from left to right,
// does not fit into int64.
std::optional<int64_t> num_bytes(const std::vector<int64_t>& shape, Dtype dtype);

// "[2, 3]"
std::string describe(const std::vector<int64_t>& shape);

}  // namespace wideep::tensor_files
