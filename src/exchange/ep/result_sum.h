// SPDX-License-Identifier: Apache-2.0
//
// The weighted sum of a token's results for engines that embed the communicator: the bits of
// kernels/reduce.h, without the kernels that wideep's own engine has for every instruction set.
//
// Thread safety: pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wideep/communicator.h"

namespace wideep::ep {

struct RowsToSum {
  std::span<const std::byte* const> rows;  // [top_k] rows of hidden values
  ResultType type = ResultType::kBf16;     // of rows
  const float* weights = nullptr;          // [top_k]
  const float* shared = nullptr;           // [hidden], or null: none
  size_t hidden = 0;
  uint16_t* out = nullptr;  // [hidden] bf16; may be one of the rows if they are bf16
};

// out[i] = (Σ_k weights[k] · rows[k][i]) + shared[i], rounded once.
void sum_rows(const RowsToSum& sum);

}  // namespace wideep::ep
