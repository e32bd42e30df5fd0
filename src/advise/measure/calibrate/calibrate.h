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

#include "cost/hardware.h"
#include "measure/calibrate/calibration_probes.h"
#include "run/run_view.h"
#include "wideep/status.h"

namespace wideep::measure {

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
  cost::Hardware hardware;
  CalibrationErrors errors;
};

// Measures in rounds, between which other measurements may be made, so that all see the same moods
// of a machine that others share.
class Calibrator {
 public:
  explicit Calibrator(CalibrationOptions options);

  // A round has so many steps, of about a second.
  int num_steps() const { return static_cast<int>(plan_.size()); }
  // REQUIRES: the caller has started no other thread.
  // Errors: too little memory; a rank failed; interrupted.
  Status measure_step(int step);

  // Of all rounds. REQUIRES: there was one.
  Calibration result() const;

 private:
  struct Planned {
    std::shared_ptr<const model::ModelConfig> config;
    kernels::WeightFormat format = kernels::WeightFormat::kBf16;
    int ranks = 1, threads = 1;
  };
  static constexpr int kTurns = 4;  // ranks that take turns on a core, of the largest group

  CalibrationOptions options_;
  int cores_;
  std::vector<Planned> plan_;
  std::vector<ProbeRun> runs_, turns_;
};

// One round. REQUIRES: the caller has started no other thread.
// Errors: too little memory; a rank failed; interrupted.
Result<Calibration> calibrate(const CalibrationOptions& options, CalibrationView& view);

}  // namespace wideep::measure
