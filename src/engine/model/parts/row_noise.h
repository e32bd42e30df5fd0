// SPDX-License-Identifier: Apache-2.0
//
// The noise that coding rows for the dispatch or combine adds: signal and noise power, summed over
// rows.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace wideep::model {

struct RowNoise {
  double signal = 0.0;  // Σ x² of the original rows
  double noise = 0.0;   // Σ (decoded − x)²
  int64_t rows = 0;

  // Adds a row. x: [hidden] of `dtype`, rounded to bf16 for the comparison. coded: the same row in
  // `format`.
  void add(const kernels::Kernels& kernels, Dtype dtype, const void* x, kernels::RowFormat format,
           const void* coded, int hidden);
  void add(const RowNoise& other);
  // The signal-to-noise ratio in dB; infinite without noise.
  double snr() const;
};

}  // namespace wideep::model
