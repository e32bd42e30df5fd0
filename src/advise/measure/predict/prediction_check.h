// SPDX-License-Identifier: Apache-2.0
//
// How far predictions are off on the machine that runs: calibrates it, and measures a fixed grid of
// small models and layouts in the same rounds. No cell of the grid is among what the calibration is
// fitted to.
//
// Thread safety: one call at a time in a process.
#pragma once

#include <string>
#include <vector>

#include "measure/calibrate/calibrate.h"
#include "measure/predict/check_cells.h"

namespace wideep::measure {

// Three families of models (grouped queries; latent attention with a shared expert and a dense
// layer; sliding windows with biases), bf16 and int8, EP 1 to 8, experts in as many slots and with
// replicas, static and online, batches of 1 and 8 and prompts, also over two ranks with context
// parallelism.
Result<std::vector<CheckedLayout>> checked_grid();

class PredictionCheck {
 public:
  // REQUIRES: layouts have bf16 or int8 weights.
  explicit PredictionCheck(std::vector<CheckedLayout> layouts);

  // Every step of the calibration and every layout once, one after the other.
  // REQUIRES: the caller has started no other thread. Errors: a rank failed; interrupted.
  Status measure_round(run::RunView& view);

  // Of all rounds. REQUIRES: there was one.
  Calibration calibration() const { return calibrator_.result(); }
  std::vector<CheckedCell> judge(const cost::Hardware& hardware) const;

 private:
  Calibrator calibrator_;
  std::vector<LayoutCheck> layouts_;
  int rounds_ = 0;
};

struct PredictionGoals {
  double median = 0.10, worst = 0.25;  // |error|
  double kendall = 0.8;                // least
};

// What misses the goals, a line each. A cell does so if its error is beyond `worst` and its own
// noise together; the median, if it is beyond `median` and the cells' median noise together; the
// order, whatever the noise. Of cells that were disturbed nothing can be said; they are left out
// (undisturbed).
std::vector<std::string> missed(const std::vector<CheckedCell>& cells,
                                const PredictionGoals& goals = {});

std::vector<CheckedCell> undisturbed(const std::vector<CheckedCell>& cells);

// A line for people.
std::string text_of(const CheckedCell& cell);
std::string text_of(const CheckedSummary& summary, size_t cells);

}  // namespace wideep::measure
