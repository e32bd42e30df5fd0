// SPDX-License-Identifier: Apache-2.0
//
// `wideep advise --disaggregated`: what is printed of servers of two kinds, and the files with which
// they run.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "advise/disaggregation.h"
#include "wideep/status.h"

namespace wideep::tools {

// The servers of each kind, and those that match, with the best aggregated layout beside each.
std::string disaggregated_text(const advise::DisaggregatedAdvice& advice);

// `recommended` has the keys that `wideep bench serving --prediction` reads.
nlohmann::ordered_json disaggregated_json(const advise::DisaggregatedAdvice& advice);

// disagg_config.yaml and, of a model with experts, a balancer file for each kind in the directory.
Status write_disaggregated(const std::string& directory, const advise::Question& question,
                           const advise::MatchedServers& servers);

}  // namespace wideep::tools
