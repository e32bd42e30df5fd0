// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace wideep::formats {

// shape × dtype in bytes; none when a dimension is negative or the product (taken left to right)
// does not fit into int64.
std::optional<int64_t> num_bytes(const std::vector<int64_t>& shape, Dtype dtype);

// "[2, 3]"
std::string describe(const std::vector<int64_t>& shape);

}  // namespace wideep::formats
