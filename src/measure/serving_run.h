// SPDX-License-Identifier: Apache-2.0
//
// What clients see of a server that speaks OpenAI's completions: ours or another.
//
// Requests are sent at their times of arrival, or as soon as no more wait than may at once, each
// over a connection of its own. Times are those of events: a token that a server keeps back, or
// sends with others, is late.
//
// Thread safety: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "measure/arrivals.h"
#include "measure/dataset.h"
#include "measure/event_stream.h"
#include "measure/percentiles.h"
#include "wideep/status.h"

namespace wideep::measure {

struct ServingOptions {
  HttpAddress address;
  std::string model;
  std::vector<DatasetRequest> requests;
  int max_concurrency = 32;
  Arrivals arrivals;
  bool ignore_eos = true;              // asks for output_tokens whatever comes
  std::chrono::seconds patience{600};  // with a server that says nothing
};

// Times in seconds.
struct ServingReport {
  double seconds = 0.0;  // from the first request to the last reply's end
  int completed = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  Percentiles ttft;                   // to the first token, from the request's sending
  Percentiles tpot;                   // per token after the first, one value a request
  Percentiles itl;                    // between two events with text
  Percentiles e2el;                   // to the last token
  std::vector<std::string> failures;  // one for each request that failed

  double requests_per_second() const { return seconds > 0 ? completed / seconds : 0.0; }
  double output_tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0.0;
  }
  double all_tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(input_tokens + output_tokens) / seconds : 0.0;
  }
};

// on_done: after each request. Errors: as EventStreams::open.
Result<ServingReport> run_serving_bench(const ServingOptions& options,
                                        const std::function<void()>& on_done);

}  // namespace wideep::measure
