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

// A row before and after coding.
struct CodedRow {
  const void* plain = nullptr;  // [width] of `dtype`
  const void* coded = nullptr;  // in `format`
  Dtype dtype = Dtype::kF32;
  kernels::RowFormat format = kernels::RowFormat::kF32;
  int width = 0;
};

struct RowNoise {
  double signal = 0.0;  // Σ x² of the original rows
  double noise = 0.0;   // Σ (decoded − x)²
  int64_t rows = 0;

  // Adds a row, whose plain form is rounded to bf16 for the comparison.
  void add(const kernels::Kernels& kernels, const CodedRow& row);
  void add(const RowNoise& other);
  // The signal-to-noise ratio in dB; infinite without noise.
  double snr() const;
};

}  // namespace wideep::model
