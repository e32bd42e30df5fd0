// SPDX-License-Identifier: Apache-2.0
//
// The parts of an iteration outside experts and exchanges, on one rank: dense products and
// attention over cached positions. Formulas as in expert_cost.h.
//
// Thread safety: plain values; pure functions.
#pragma once

#include "cost/hardware.h"

namespace wideep::cost {

// Products of `rows` rows with matrices, and what is done with the rows beside them.
struct DenseWork {
  double weights = 0.0;   // elements of all matrices
  double matrices = 1.0;  // their number
  double rows = 0.0;
  double hidden = 0.0;        // elements of a row; it is read and written for each matrix
  double intermediate = 0.0;  // elements of a row between an MLP's products
};
double product_seconds(const Hardware& hardware, const ProductKernel& kernel,
                       kernels::WeightFormat format, const DenseWork& work);

// One layer's scores and values: `cached_bytes` of keys and values are read, `multiply_adds` done.
double attention_seconds(const Hardware& hardware, double cached_bytes, double multiply_adds);

}  // namespace wideep::cost
