// SPDX-License-Identifier: Apache-2.0
//
// What coding rows for their travel costs: signal and noise, summed over rows.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace wideep::model {

struct RowNoise {
  double signal = 0.0;  // Σ x² of the rows as they were
  double noise = 0.0;   // Σ (decoded − x)²
  int64_t rows = 0;

  // Adds a row. x: [hidden] of `dtype`; noise is measured against it rounded to bf16. coded: the
  // same row in `format`.
  void add(const kernels::Kernels& kernels, Dtype dtype, const void* x, kernels::RowFormat format,
           const void* coded, int hidden);
  void add(const RowNoise& other);
  // In dB. Infinite without noise.
  double snr() const;
};

}  // namespace wideep::model
