// SPDX-License-Identifier: Apache-2.0
//
// What logs of iterations (`--iteration-log`, engine/iteration_log.h) say of a server at one load:
// how fast, how steady, how even over ranks, and what moved.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "measure/serving_run.h"
#include "wideep/status.h"

namespace wideep::measure {

struct IterationLogSummary {
  std::string name;  // of the file, without directory and extension
  int64_t iterations = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double seconds = 0.0;          // from the first iteration's begin to the last one's end
  double active_requests = 0.0;  // mean over iterations
  Percentiles latency_ms;        // of an iteration
  double longest_ms = 0.0;
  double imbalance_ratio = 0.0;   // mean over the iterations with tokens
  double critical_path_ms = 0.0;  // mean over iterations
  int64_t expert_moves = 0;
  int64_t moved_bytes = 0;

  double tokens_per_second() const {
    return seconds > 0.0 ? static_cast<double>(generated_tokens) / seconds : 0.0;
  }
};

// Errors (invalid input) name file and line: cannot be read, no JSON, a key that is missing or of
// another type; a log without iterations.
Result<IterationLogSummary> summarize_iterations(const std::string& path);

}  // namespace wideep::measure
