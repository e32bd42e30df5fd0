// SPDX-License-Identifier: Apache-2.0
//
// The files with which `wideep serve` runs a recommended layout: parallel_config.yaml and
// moe_load_balancer.yaml.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "advise/advise.h"
#include "plan/model_plan.h"
#include "wideep/status.h"

namespace wideep::advise {

struct ConfigFiles {
  std::string parallel;               // the text of parallel_config.yaml
  balance::ModelPlacement placement;  // no layer: the model is dense, and needs no such file
};

// The files of a candidate of the question's advice. layer_updates: of an iteration; 0: static.
// balancer_path: of moe_load_balancer.yaml, as parallel_config.yaml names it. Errors (invalid
// input): a shape that the planner cannot serve.
Result<ConfigFiles> config_files(const Question& question, const Candidate& candidate,
                                 int layer_updates, const std::string& balancer_path);

}  // namespace wideep::advise
