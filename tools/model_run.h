// SPDX-License-Identifier: Apache-2.0
//
// A model directory and a configuration as a run to be planned, before anything is loaded.
#pragma once

#include <optional>
#include <string>

#include "parallel/parallel_config.h"
#include "run/run_plan.h"
#include "wideep/status.h"

namespace wideep::tools {

bool has_file(const std::string& model_dir, const char* name);
bool has_weights(const std::string& model_dir);

// What a plan is made from; config.json is enough. format: of matrices, where the command line
// says; else as they are stored. Errors (invalid input): as model::read_model_config and
// parallel::initial_placement.
struct ModelRun {
  run::ModelFacts model;
  run::RunOptions options;
};
Result<ModelRun> model_run(const std::string& model_dir,
                           std::optional<kernels::WeightFormat> format,
                           const parallel::ParallelConfig& parallel);

}  // namespace wideep::tools
