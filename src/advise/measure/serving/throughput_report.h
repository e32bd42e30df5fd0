// SPDX-License-Identifier: Apache-2.0
//
// Figures of a throughput run, as trtllm-bench defines and names them.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "base/percentiles.h"
#include "measure/serving/throughput_run.h"

namespace wideep::measure {

struct ThroughputReport {
  int num_requests = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  double total_ms = 0.0;  // from the first request's start to the last token
  double avg_concurrent_requests = 0.0;
  std::optional<double> issue_rate_req_s;  // requests started per second; nothing: all at once

  base::Percentiles latency_ms;  // per request: from its start to its last token
  base::Percentiles ttft_ms;     // per request: from its start to its first token
  base::Percentiles
      tpot_ms;               // per request with more than one token: time per token after the first
  base::Percentiles itl_ms;  // between two tokens of a request, over all requests
  base::Percentiles user_speed;  // per request: tokens per second after its first token

  double output_per_user = 0.0;  // mean over requests of tokens / latency, per second

  double per_second(double count) const { return total_ms > 0 ? count / total_ms * 1e3 : 0.0; }
};

// REQUIRES: every request has at least one token.
ThroughputReport report_of(const std::vector<RequestTimes>& requests);

}  // namespace wideep::measure
