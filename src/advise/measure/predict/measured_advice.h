// SPDX-License-Identifier: Apache-2.0
//
// `wideep advise --measure`: the recommendation and its neighbours run on this machine, and what
// their iterations took corrects later predictions of the same model on it, by a factor for each
// part, of prompts and of generated tokens. The factors are kept in a file with what was measured,
// when, and by which version:
//
//   machine: AMD EPYC, 2 cores
//   model: 6 layers of 768, 12 heads, 32 experts of 384, top 4, vocabulary 16384
//   version: 0.9.0
//   date: 2026-11-27
//   factors:
//     generating: {experts: 1.04, dense: 0.98, exchange: 0.93}
//     prompts: {experts: 1.01, dense: 1.1, exchange: 1}
//   measured:
//     EP 2, attention DP, 32 slots, bf16, batch 8: {predicted: 0.0021, measured: 0.0022}
//
// Thread safety: one call of measure_advice at a time in a process; the rest are pure functions.
#pragma once

#include <string>
#include <vector>

#include "advise/advise.h"
#include "measure/predict/check_cells.h"

namespace wideep::measure {

struct MeasuredCell {
  std::string name;
  double predicted = 0.0, measured = 0.0;  // seconds, without factors

  bool operator==(const MeasuredCell&) const = default;
};

struct AdviceCalibration {
  std::string machine, model, version, date;
  cost::IterationFactors factors;
  std::vector<MeasuredCell> measured;

  bool operator==(const AdviceCalibration&) const = default;
};

// How this machine and a model are called in the file.
std::string machine_text();
std::string model_text(const model::ModelConfig& config);

// Errors (invalid input): the file cannot be read; a missing, unknown or impossible value.
Result<AdviceCalibration> read_advice_calibration(const std::string& path);
Result<AdviceCalibration> parse_advice_calibration(const std::string& text,
                                                   const std::string& name);
std::string advice_calibration_text(const AdviceCalibration& calibration);

// Errors (invalid input): it is of another machine or of another model.
Status check_matches(const AdviceCalibration& calibration, const std::string& path,
                     const std::string& machine, const std::string& model);

// "experts ×1.04, dense ×0.98, exchange ×0.93; of prompts ×1.01, ×1.10, ×1.00"
std::string text_of(const cost::IterationFactors& factors);

// Of each part, what was measured against what was predicted, of all cells of prompts and of all
// others, every cell counting as one; between 1/4 and 4, and 1 without cells.
cost::IterationFactors factors_of(const std::vector<CheckedCell>& cells);

// The layouts that measure_advice runs: the recommendation, then its neighbours, five in all.
// REQUIRES: there is a recommendation.
std::vector<advise::Candidate> to_measure(const advise::Advice& advice,
                                          const advise::Workload& workload, int num_experts);

// Runs candidates of the question's advice, with random weights. The question's hardware: of this
// machine, without factors. A layout that cannot run here is left out, with a line in `left_out`.
// REQUIRES: the caller has started no other thread. Errors: none can run; interrupted.
Result<std::vector<CheckedCell>> measure_advice(const advise::Question& question,
                                                const std::vector<advise::Candidate>& candidates,
                                                run::RunView& view,
                                                std::vector<std::string>* left_out);

}  // namespace wideep::measure
