// SPDX-License-Identifier: Apache-2.0
//
// Summary of an iteration log (`--iteration-log`, run/iteration_log.h): speed, latency of
// iterations, balance over ranks, and moved experts.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "measure/serving/serving_run.h"
#include "wideep/status.h"

namespace wideep::measure {

struct IterationLogSummary {
  std::string name;  // file name without directory and extension
  int64_t iterations = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double seconds = 0.0;          // from the start of the first iteration to the end of the last
  double active_requests = 0.0;  // mean over iterations
  base::Percentiles latency_ms;  // of iterations
  double longest_ms = 0.0;
  double imbalance_ratio = 0.0;   // mean over the iterations with tokens
  double critical_path_ms = 0.0;  // mean over iterations
  int64_t expert_moves = 0;
  int64_t moved_bytes = 0;

  double tokens_per_second() const {
    return seconds > 0.0 ? static_cast<double>(generated_tokens) / seconds : 0.0;
  }
};

// Errors (invalid input) name file and line: the file cannot be read, a line is not JSON, a key is
// missing or has another type; the log has no iterations.
Result<IterationLogSummary> summarize_iterations(const std::string& path);

}  // namespace wideep::measure
