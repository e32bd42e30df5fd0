// SPDX-License-Identifier: Apache-2.0
//
// From a model directory and a parallel configuration to the input of run::plan_run. Reads no
// weights.
#pragma once

#include <optional>
#include <string>

#include "parallel/parallel_config.h"
#include "run/run_plan.h"
#include "wideep/status.h"

namespace wideep::tools {

bool has_file(const std::string& model_dir, const char* name);
bool has_weights(const std::string& model_dir);

// The input of run::plan_run; config.json is enough. format: of the matrices; nothing: as stored,
// or as config.json gives it if there are no weights. Errors (invalid input): those of
// model::read_model_config and parallel::initial_placement.
struct ModelRun {
  run::ModelFacts model;
  run::RunOptions options;
};
Result<ModelRun> model_run(const std::string& model_dir,
                           std::optional<kernels::WeightFormat> format,
                           const parallel::ParallelConfig& parallel);

}  // namespace wideep::tools
