// SPDX-License-Identifier: Apache-2.0
//
// The parts of an iteration outside experts and exchanges, on one rank: dense products and
// attention over cached positions. Formulas as in expert_cost.h.
//
// Thread safety: plain values; pure functions.
#pragma once

#include "simulate/hardware.h"

namespace wideep::simulate {

// A product of `rows` rows of `hidden` elements with a matrix of `weights` elements.
double product_seconds(const Hardware& hardware, const ProductKernel& kernel,
                       kernels::WeightFormat format, double weights, double rows, double hidden);

// One layer's scores and values: `cached_bytes` of keys and values are read, `multiply_adds` done.
double attention_seconds(const Hardware& hardware, double cached_bytes, double multiply_adds);

}  // namespace wideep::simulate
