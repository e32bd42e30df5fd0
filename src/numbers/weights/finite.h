// SPDX-License-Identifier: Apache-2.0
//
// Checks that weights are finite numbers. A single NaN or infinity in a matrix would reach every
// logit, and the text would be noise without an error.
//
// The check reads each piece of a tensor once more, just before it is packed.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "tensor_files/safetensors.h"
#include "wideep/status.h"

namespace wideep::weights {

// Checks elements [first, first + count) of a tensor of floats or F8_E4M3; other dtypes have no
// such values. where: the begin of the error message, file and tensor.
// Errors (invalid input): the first value that is not finite, with its row and column. They count
// from `before` elements before the tensor, for a tensor that is a part of a matrix.
// REQUIRES: the elements exist.
Status check_finite(const tensor_files::TensorEntry& entry, int64_t first, int64_t count,
                    const std::string& where, int64_t before = 0);
// Checks all elements.
inline Status check_finite(const tensor_files::TensorEntry& entry, const std::string& where) {
  return check_finite(entry, 0, entry.num_elements(), where);
}

// The error for the element `index` of a tensor whose rows have `columns` elements.
Status not_finite(const std::string& where, float value, int64_t index, int64_t columns);

}  // namespace wideep::weights
