// SPDX-License-Identifier: Apache-2.0
//
// What `wideep advise` and the `wideep simulate ...` commands are given: a model's configuration, a
// description of hardware, a load.
#pragma once

#include <string>

#include "balance/model_plan.h"
#include "command_line/command_line.h"
#include "model/config.h"
#include "simulate/hardware.h"
#include "statistics_options.h"
#include "wideep/status.h"

namespace wideep::tools {

// Adds --model and --hardware. The strings must outlive the parsing.
void add_model_and_hardware(command_line::Command command, std::string* model,
                            std::string* hardware);

// From a model directory, a GGUF file, or a config.json alone.
Result<model::ModelConfig> read_config(const std::string& path);
// By the name of a shipped description, from a file, or for "this" by measuring this machine, which
// takes half a minute. REQUIRES, for that: the process has started no other thread.
Result<simulate::Hardware> find_hardware(const std::string& name);
// Measures this machine, with a line of progress, and says how well its constants fit.
Result<simulate::Hardware> measure_hardware();

// The load of the model's MoE layers; without statistics the same for all experts, with a warning.
// Layers that predict are left out.
Result<balance::ModelLoad> read_load(const StatisticsOptions& options,
                                     const model::ModelConfig& config);

}  // namespace wideep::tools
