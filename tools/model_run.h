// SPDX-License-Identifier: Apache-2.0
//
// A model directory and a configuration as a run to be judged, before anything is loaded.
#pragma once

#include <optional>
#include <string>

#include "engine/advice.h"
#include "parallel/parallel_config.h"
#include "wideep/status.h"

namespace wideep::tools {

bool has_file(const std::string& model_dir, const char* name);
bool has_weights(const std::string& model_dir);

// format: of matrices, where the command line says; else as they are stored. config.json is enough.
// Errors (invalid input): as model::read_model_config, parallel::initial_placement,
// engine::moe_options and engine::joint_layout.
Result<engine::ModelRun> model_run(const std::string& model_dir,
                                   std::optional<kernels::WeightFormat> format,
                                   const parallel::ParallelConfig& parallel);

}  // namespace wideep::tools
