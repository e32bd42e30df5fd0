// SPDX-License-Identifier: Apache-2.0
//
// The report of `wideep bench throughput` and `latency`: the blocks and the JSON of trtllm-bench,
// with the same names; a rank counts as a GPU.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "measure/serving/throughput_report.h"

namespace wideep::tools {

struct BenchedRun {
  std::string model;       // --model as given
  std::string model_path;  // its directory
  std::string dataset;     // its path
  bool streaming = false;
  const measure::ThroughputOptions& options;
  const measure::ThroughputRun& run;
};

std::string throughput_text(const BenchedRun& benched, const measure::ThroughputReport& report);
nlohmann::ordered_json throughput_json(const BenchedRun& benched,
                                       const measure::ThroughputReport& report);

// A list with one object per request: its times (requests_json), its tokens and text
// (outputs_json).
nlohmann::ordered_json requests_json(const BenchedRun& benched);
nlohmann::ordered_json outputs_json(const BenchedRun& benched);

}  // namespace wideep::tools
