// SPDX-License-Identifier: Apache-2.0
//
// Figures of a throughput run, by the definitions of trtllm-bench: its report has them under these
// names.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "measure/percentiles.h"
#include "measure/throughput_run.h"

namespace wideep::measure {

struct ThroughputReport {
  int num_requests = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  double total_ms = 0.0;  // from the first request's start to the last token
  double avg_concurrent_requests = 0.0;
  std::optional<double> issue_rate_req_s;  // starts a second; nothing: all at one moment

  Percentiles latency_ms;  // of requests: from their start to their last token
  Percentiles ttft_ms;     // to their first token
  Percentiles tpot_ms;     // per token after the first; of requests with more than one
  Percentiles itl_ms;      // between two tokens of a request, over all
  Percentiles user_speed;  // tokens a second of a request after its first

  double output_per_user = 0.0;  // mean over requests of their tokens ÷ their latency, per second

  double per_second(double count) const { return total_ms > 0 ? count / total_ms * 1e3 : 0.0; }
};

// REQUIRES: every request has a token.
ThroughputReport report_of(const std::vector<RequestTimes>& requests);

}  // namespace wideep::measure
