// SPDX-License-Identifier: Apache-2.0
//
// Describes the machine that the program runs on, by measuring: its limits (measure/limits), and
// what the engine's own ranks take for iterations of small models with random weights, from which
// the constants of kernels are fitted. What is measured is processor time of a rank with one
// thread, so that other work on the machine disturbs little.
//
// Thread safety: one call at a time in a process.
#pragma once

#include <string>
#include <vector>

#include "run/run_view.h"
#include "simulate/hardware.h"
#include "wideep/status.h"

namespace wideep::simulate {

struct CalibrationOptions {
  std::vector<kernels::WeightFormat> formats;  // that are measured; not empty
  std::string name = "this";
};

class CalibrationView : public run::RunView {
 public:
  virtual void model_measured(int /*done*/, int /*all*/) {}
};

// How well the fitted constants describe what they were fitted to: medians of relative errors.
struct CalibrationErrors {
  double experts = 0.0, dense = 0.0;
};

struct Calibration {
  Hardware hardware;
  CalibrationErrors errors;
};

// REQUIRES: the caller has started no other thread.
// Errors: too little memory; a rank failed; interrupted.
Result<Calibration> calibrate(const CalibrationOptions& options, CalibrationView& view);

}  // namespace wideep::simulate
