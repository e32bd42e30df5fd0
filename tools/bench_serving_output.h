// SPDX-License-Identifier: Apache-2.0
//
// The report of `wideep bench serving`: the blocks that benchmark_serving prints, its result file,
// and JSON of wideep's own (--json).
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "measure/serving/serving_run.h"
#include "wideep/status.h"

namespace wideep::tools {

// What `wideep advise` has predicted of a service.
struct ServingPrediction {
  std::string of;  // its name, for people
  double output_tokens_per_second = 0.0;
  double ttft_ms = 0.0, tpot_ms = 0.0;  // means
};
// Of what `wideep advise --json` has printed: of disaggregated servers, if it has them, else of the
// recommended layout. Errors (invalid input): no such file; it recommends nothing.
Result<ServingPrediction> read_serving_prediction(const std::string& path);

// What is reported of the times.
struct ServingFigures {
  std::vector<std::string> metrics;     // of ttft, tpot, itl, e2el: with a block of their own
  std::vector<double> percentiles;      // from 0 to 100
  std::map<std::string, double> goals;  // ms by metric (ttft, tpot, e2el): --goodput
  std::optional<ServingPrediction> prediction;  // beside which measured values stand
};

// Errors (invalid input): an unknown metric, no number, a number out of range.
Result<ServingFigures> read_serving_figures(const std::string& metrics,
                                            const std::string& percentiles,
                                            const std::vector<std::string>& goals);

std::string serving_text(const measure::ServingReport& report, const ServingFigures& figures);
// wideep's own, for --json.
nlohmann::ordered_json serving_json(const measure::ServingReport& report,
                                    const ServingFigures& figures);

// benchmark_serving's result file.
struct ServingRun {
  std::string backend, model, tokenizer;
  int num_prompts = 0;
  double request_rate = 0.0, burstiness = 1.0;
  int max_concurrency = 0;
  std::vector<std::pair<std::string, std::string>> metadata;
  bool is_detailed = false;  // also the lists with a value for each request
};
// "openai-infqps-concurrency32-reference-20260101-120000.json"; date: "20260101-120000".
std::string result_file_name(const ServingRun& run, const std::string& date);
nlohmann::ordered_json result_json(const ServingRun& run, const std::string& date,
                                   const measure::ServingReport& report,
                                   const ServingFigures& figures);

}  // namespace wideep::tools
