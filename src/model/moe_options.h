// SPDX-License-Identifier: Apache-2.0
//
// How rows travel between ranks in MoE layers.
//
// Thread safety: a plain value.
#pragma once

#include <optional>

#include "base/dtype.h"
#include "kernels/row_format.h"

namespace wideep::model {

struct MoeOptions {
  Dtype row_dtype = Dtype::kBf16;  // that experts take and return: kBf16 or kF32
  // In which form rows are dispatched and results returned; without a value: in row_dtype.
  std::optional<kernels::RowFormat> dispatch, combine;
  bool perfect_router = false;  // tokens go to experts evenly, whatever the router says
  bool measure_noise = false;   // report it to observers; every row is decoded for it

  kernels::RowFormat dispatch_format() const {
    return dispatch.value_or(kernels::row_format(row_dtype));
  }
  kernels::RowFormat combine_format() const {
    return combine.value_or(kernels::row_format(row_dtype));
  }
};

}  // namespace wideep::model
