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

class ResidentExperts;

struct MoeOptions {
  Dtype row_dtype = Dtype::kBf16;  // of the rows that experts take and return: kBf16 or kF32
  // The formats in which rows are dispatched and results returned; nullopt: row_dtype.
  std::optional<kernels::RowFormat> dispatch, combine;
  bool perfect_router = false;  // replaces the router's choice by an even one (perfect_router.h)
  bool count_slots = false;     // MoeLayerRecord::slot_counts; else they are not counted at all
  bool measure_noise = false;   // report coding noise to the observer; decodes every row for it
  ResidentExperts* resident = nullptr;  // null: all experts of the slots are in memory

  kernels::RowFormat dispatch_format() const {
    return dispatch.value_or(kernels::row_format(row_dtype));
  }
  kernels::RowFormat combine_format() const {
    return combine.value_or(kernels::row_format(row_dtype));
  }
};

}  // namespace wideep::model
