// SPDX-License-Identifier: Apache-2.0
//
// Finds and checks the tensors of a quantised matrix.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <vector>

#include "weights/coded_source.h"
#include "weights/stored_layout.h"
#include "weights/tensor_source.h"
#include "wideep/status.h"

namespace wideep::weights {

struct OpenedCodes {
  CodedSource codes;
  std::vector<std::span<const std::byte>> sources;  // as StoredMatrix::sources()
};

// The matrix [n, k] of the module. Errors (invalid input): as StoredMatrix::open().
// REQUIRES: layout is stored_layout(module, k), and its kind is not missing or floats.
Result<OpenedCodes> open_coded(const StoredModule& module, const StoredLayout& layout, int n,
                               int k);

}  // namespace wideep::weights
