// SPDX-License-Identifier: Apache-2.0
//
// How long a rank computes its experts in one layer.
//
//   bytes    of the experts that any row reaches, read once
//   compute  two operations for each weight and row; an expert's rows in whole tiles
//   rows     activations that are written and read again between the products
//
//   seconds = overhead + (bytes³ + compute³)^(1/3) + rows
//
// each divided by what the machine does of it in a second. The cube lets the larger of two
// overlapping parts rule, with a smooth way from one to the other. The overhead does not shrink
// with the number of experts.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <span>

#include "cost/hardware.h"

namespace wideep::cost {

// An expert: a gated MLP of three matrices [intermediate × hidden], or one without a gate of two.
struct ExpertShape {
  int hidden = 0;
  int intermediate = 0;  // of this rank, if experts are cut
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  bool has_gate = true;

  double weights() const { return (has_gate ? 3.0 : 2.0) * hidden * intermediate; }
  double bytes() const;
};

// What the slots of a rank get to do in one layer. A sum over slots; slots may be replicas.
struct ExpertWork {
  double experts = 0.0;     // that any row reaches
  double rows = 0.0;        // (token, expert) pairs
  double tiled_rows = 0.0;  // rows, those of each expert rounded up to whole tiles
};

// The work of slots with these numbers of rows. Numbers may be fractions: a slot with half a row
// is reached every second time.
ExpertWork expert_work(std::span<const double> rows_of_slots, int tile);

// The parts of the sum above, in seconds.
struct ExpertTime {
  double overhead = 0.0, bytes = 0.0, compute = 0.0, rows = 0.0;

  double seconds() const;
};

// REQUIRES: hardware.supports(shape.format).
ExpertTime expert_time(const Hardware& hardware, const ProductKernel& kernel,
                       const ExpertShape& shape, const ExpertWork& work);

// Bytes of a weight of a format, its scales included.
double bytes_per_weight(kernels::WeightFormat format);

}  // namespace wideep::cost
