// SPDX-License-Identifier: Apache-2.0
//
// What `wideep bench ep` expects of a result row and of a token's sum, with bounds that follow from
// the row format: the time of an exchange that loses rows or mixes them up would mean nothing.
//
// All elements of a result are one value v, a whole number that bf16 holds. So v is the largest
// value of every scale, and the bound of a row is that of the scale alone, far below half a step of
// the format (docs/bench.md derives both):
//
//   bf16   0, and f32 too.
//   fp8    The inverse scale is t = bf16(448 / v) = 448 / v · (1 + d) with |d| <= 2⁻⁸, half a step
//          of bf16. v · t lies within 448 ± 1.75, whose nearest code is 448 (the next is 416, and
//          448 is the largest), so 448 / t = v / (1 + d) comes back: off by 2⁻⁸ / (1 − 2⁻⁸) of v.
//   nvfp4  The row's scale is v / 2688, the groups' scale the code 448, the element the code 6.
//          Their product is v but for float32.
//
// Each float32 operation adds 2⁻²⁴ of its result: at most four on the way to a decoded value. A sum
// of n rows has n products of weight and scale and n additions; all terms are positive, so they add
// at most 2 n · 2⁻²⁴ of the sum. A sum that is written as a bf16 row is rounded once more, by 2⁻⁸.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "kernels/kernels.h"
#include "wideep/status.h"

namespace wideep::measure {

// |decoded − v| / v at most, of a row whose elements are all v.
double max_row_error(kernels::RowFormat format);

// |sum − Σ weight · v| / Σ weight · v at most, of n rows with positive weights, kept as float32 or
// as bf16.
double max_sum_error(kernels::RowFormat format, Dtype sum, int n);

// A row, and the value of all its elements.
struct ExpectedRow {
  kernels::RowFormat format;
  int hidden;
  float value;
};
// Errors (failed): the first element out of the bound, with the bound.
Status check_row(const ExpectedRow& expected, const std::byte* row,
                 const kernels::Kernels& kernels);

}  // namespace wideep::measure
