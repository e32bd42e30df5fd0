// SPDX-License-Identifier: Apache-2.0
//
// The files with which `wideep serve` runs a recommended layout: parallel_config.yaml and
// moe_load_balancer.yaml; and those of matched servers, for `wideep disaggregated`.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "advise/advise.h"
#include "advise/disaggregation.h"
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

struct DisaggregatedFiles {
  std::string config;  // the text of disagg_config.yaml
  // As ConfigFiles::placement.
  balance::ModelPlacement context, generation;
};

// Paths as disagg_config.yaml names them.
struct DisaggregatedPaths {
  std::string config;
  std::string context_balancer, generation_balancer;
};

// Servers on this machine from port 8001 on, one after the other, behind port 8000; static
// placements. Errors (invalid input): as config_files().
Result<DisaggregatedFiles> disaggregated_files(const Question& question,
                                               const MatchedServers& servers,
                                               const DisaggregatedPaths& paths);

}  // namespace wideep::advise
