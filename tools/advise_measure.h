// SPDX-License-Identifier: Apache-2.0
//
// `wideep advise --measure` and `--calibration`: predictions beside measurements on this machine,
// and the file of factors that corrects later ones.
#pragma once

#include <string>

#include "command_line/command_line.h"
#include "measure/predict/measured_advice.h"
#include "wideep/status.h"

namespace wideep::tools {

struct MeasureOptions {
  bool measure = false;
  std::string calibration;  // a file; empty: kDefaultCalibration, if it fits

  std::string path() const;
};
inline constexpr const char* kDefaultCalibration = "wideep_calibration.yaml";

// The options must outlive the parsing.
void add_measure_options(command_line::Command command, MeasureOptions* options);

// Errors (invalid input): one of the options with other hardware than "this"; a file that cannot be
// written.
Status check_measure_options(const MeasureOptions& options, const std::string& hardware);

// Before anything is measured. Errors (invalid input): a file that was asked for, or that would be
// replaced, is of another machine or model, or no such file.
Status check_kept_calibration(const MeasureOptions& options, const model::ModelConfig& config);

// Sets the factors of a kept file, and says so in a line. A file that nobody asked for and that is
// of another machine or model is left aside with a line. Nothing happens where a new one is to be
// measured, or with other hardware than "this".
Status use_kept_calibration(const MeasureOptions& options, const std::string& hardware_name,
                            const model::ModelConfig& config, cost::Hardware* hardware);

struct MeasureInput {
  const advise::Question& question;
  const advise::Advice& advice;  // with a recommendation
  bool quiet = false;            // stdout is for something else
};
// REQUIRES: the process has started no other thread.
Status measure_and_keep(const MeasureOptions& options, const MeasureInput& input);

}  // namespace wideep::tools
