// SPDX-License-Identifier: Apache-2.0
//
// Predicted against measured: iterations of small models on this machine, in many layouts.
//
// Thread safety: one call at a time in a process.
#pragma once

#include <string>
#include <vector>

#include "model/config.h"
#include "parallel/parallel_config.h"
#include "run/run_view.h"
#include "simulate/hardware.h"
#include "wideep/status.h"

namespace wideep::simulate {

// A layout whose iterations are predicted and measured, one cell for each number of tokens.
struct CheckedLayout {
  std::string name;  // for people
  model::ModelConfig config;
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  parallel::ParallelConfig parallel;
  std::vector<int> batches;  // requests of each rank, a token of each in an iteration
  std::vector<int> prompts;  // tokens of one prompt on each rank, at most 512
};

struct CheckedCell {
  std::string name;
  double predicted = 0.0, measured = 0.0;  // seconds of an iteration; the median of several
  double noise = 0.0;  // of repetitions: how far they are from their median, as a share; median

  double error() const { return predicted / measured - 1.0; }
};

// REQUIRES: the caller has started no other thread; hardware is of this machine.
// Errors: a layout that does not fit the model; a rank failed; interrupted.
Result<std::vector<CheckedCell>> check_layout(const Hardware& hardware, const CheckedLayout& layout,
                                              run::RunView& view);

struct CheckedSummary {
  double median = 0.0, worst = 0.0;  // |error|
  double noise = 0.0;                // median
  double kendall = 0.0;              // rank correlation of predicted and measured, −1 to 1
};
CheckedSummary summarize(const std::vector<CheckedCell>& cells);

// The share of pairs in the same order less that of pairs in the other order.
double kendall_tau(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace wideep::simulate
