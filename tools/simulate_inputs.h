// SPDX-License-Identifier: Apache-2.0
//
// What `wideep advise` and the `wideep simulate ...` commands are given: a model's configuration, a
// description of hardware, a load.
#pragma once

#include <string>
#include <vector>

#include "command_line/command_line.h"
#include "cost/hardware.h"
#include "model/config/config.h"
#include "plan/model_plan.h"
#include "plan/windowed_load.h"
#include "statistics_options.h"
#include "wideep/status.h"

namespace wideep::tools {

// Adds --model and --hardware. The strings must outlive the parsing.
void add_model_and_hardware(command_line::Command command, std::string* model,
                            std::string* hardware);

// From a model directory, a GGUF file, or a config.json alone.
Result<model::ModelConfig> read_config(const std::string& path);
// The same for commands about experts. Errors (invalid input): the model has none.
Result<model::ModelConfig> read_config_of_experts(const std::string& path);
// By the name of a shipped description, from a file, or for "this" by measuring this machine, which
// takes half a minute; formats: that are measured, empty: bf16, fp8, int8 and int4. REQUIRES, for
// that: the process has started no other thread.
Result<cost::Hardware> find_hardware(const std::string& name,
                                     std::vector<kernels::WeightFormat> formats = {});
// Measures this machine, with a line of progress, and says how well its constants fit.
Result<cost::Hardware> measure_hardware(std::vector<kernels::WeightFormat> formats = {});

// What placements are planned for, and what they are judged by.
struct Loads {
  balance::ModelLoad planned, judged;
  balance::WindowedLoad windows;  // of what judges, at most 8
  std::string text;               // for people: what was judged by what
  bool is_known = true;           // from statistics; else all experts are taken to be alike
};

// Leaves out the layers that are not among these, which ascend.
void keep_layers(const std::vector<int>& layers, balance::WindowedLoad* windows);

// Adds --holdout. The string must outlive the parsing.
void add_holdout_option(command_line::Command command, std::string* holdout);

// Without holdout: plans on the first half of the iterations and judges by the second, or by the
// same where there is a single iteration. Else as read_split_statistics.
Result<Loads> read_loads(const StatisticsOptions& options, const std::string& holdout);
// The loads of the model's MoE layers; without statistics the same for all experts, with a warning.
// Layers that predict are left out.
Result<Loads> read_loads(const StatisticsOptions& options, const std::string& holdout,
                         const model::ModelConfig& config);

}  // namespace wideep::tools
