// SPDX-License-Identifier: Apache-2.0
//
// Predicted against measured: iterations of small models on this machine, in many layouts.
//
// Thread safety: one call at a time in a process.
#pragma once

#include <string>
#include <vector>

#include "cost/hardware.h"
#include "cost/layout.h"
#include "cost/step_cost.h"
#include "measure/calibrate/iteration_parts.h"
#include "model/config/config.h"
#include "model/model_work.h"
#include "parallel/parallel_config.h"
#include "plan/model_plan.h"
#include "run/run_view.h"
#include "wideep/status.h"

namespace wideep::measure {

// A layout whose iterations are predicted and measured, one cell for each number of tokens.
struct CheckedLayout {
  std::string name;  // for people
  model::ModelConfig config;
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  parallel::ParallelConfig parallel;
  std::vector<int> batches;  // requests of each rank, a token of each in an iteration
  std::vector<int> prompts;  // tokens of one prompt on each rank, at most 512
  std::string checkpoint;    // directory with the model's weights; empty: random ones
};

struct CheckedCell {
  std::string name;
  bool is_prompt = false;
  // Seconds of an iteration. Measured is the median over rounds of each one's lower quartile, since
  // others on the machine only ever make an iteration longer.
  double predicted = 0.0, measured = 0.0;
  // Measured: medians, but of waiting the lower quartile.
  IterationParts predicted_parts, measured_parts;
  double noise = 0.0;  // the distance of rounds from that, as a share; median

  double others = 0.0;  // what other programs used of the processors (other_work.h), median

  bool is_disturbed() const;
  double error() const { return predicted / measured - 1.0; }
};

// Measures in rounds, between which others are measured, so that a machine that changes its mood
// does so for all.
class LayoutCheck {
 public:
  explicit LayoutCheck(CheckedLayout layout) : layout_(std::move(layout)) {}

  // A round: starts the ranks, runs every cell so often, and ends them.
  // REQUIRES: the caller has started no other thread.
  // Errors: a layout that does not fit the model or the memory; a rank failed; interrupted.
  Status measure(int repetitions, run::RunView& view);

  const std::string& name() const { return layout_.name; }

  // The cost of its iterations, with the experts that were chosen while it was measured.
  // REQUIRES: there was a round; hardware is of this machine.
  cost::StepCost cost(const cost::Hardware& hardware) const;
  // REQUIRES: as cost().
  std::vector<CheckedCell> judge(const cost::Hardware& hardware) const;

 private:
  struct Cell {
    bool is_prompt = false;
    int size = 0;                       // requests of a rank, or tokens of its prompt
    std::vector<double> rounds;         // seconds
    std::vector<IterationParts> parts;  // of all iterations
  };

  model::StepShape shape_of(const Cell& cell) const;
  void add_counts(const std::vector<run::Iteration>& iterations);

  CheckedLayout layout_;
  cost::Layout described_;
  balance::ModelPlacement placement_;
  balance::ModelLoad load_;
  std::vector<Cell> cells_;
  std::vector<double> others_;  // of rounds
};

struct CheckedSummary {
  double median = 0.0, worst = 0.0;  // |error|
  double noise = 0.0;                // median
  double kendall = 0.0;              // rank correlation of predicted and measured, −1 to 1
};
CheckedSummary summarize(const std::vector<CheckedCell>& cells);

// The share of pairs in the same order less that of pairs in the other order.
double kendall_tau(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace wideep::measure
