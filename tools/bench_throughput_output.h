// SPDX-License-Identifier: Apache-2.0
//
// The report of `wideep bench throughput` and `latency`: the blocks that trtllm-bench prints, and
// its JSON, with the same names; a rank stands where it has a GPU.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "measure/throughput_report.h"

namespace wideep::tools {

struct BenchedRun {
  std::string model;    // as it was given
  std::string dataset;  // its path
  bool streaming = false;
  const measure::ThroughputOptions& options;
  const measure::ThroughputRun& run;
};

std::string throughput_text(const BenchedRun& benched, const measure::ThroughputReport& report);
nlohmann::ordered_json throughput_json(const BenchedRun& benched,
                                       const measure::ThroughputReport& report);

// A list with an object for each request: how long it took; what came out.
nlohmann::ordered_json requests_json(const BenchedRun& benched);
nlohmann::ordered_json outputs_json(const BenchedRun& benched);

}  // namespace wideep::tools
