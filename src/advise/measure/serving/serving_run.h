// SPDX-License-Identifier: Apache-2.0
//
// Measures a server with OpenAI's completions endpoint as its clients see it: wideep's or another.
//
// Each request is sent at its arrival time, but not before fewer than max_concurrency requests are
// under way, over a connection of its own. Token times are the arrival times of events: a token
// that the server holds back, or sends together with others, counts as late.
//
// Thread safety: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "advise/arrivals.h"
#include "base/percentiles.h"
#include "measure/serving/dataset.h"
#include "measure/serving/event_stream.h"
#include "wideep/status.h"

namespace wideep::measure {

struct ServingOptions {
  HttpAddress address;
  std::string model;
  std::vector<DatasetRequest> requests;
  int max_concurrency = 32;
  advise::Arrivals arrivals;
  bool ignore_eos = true;              // asks for output_tokens tokens even after an end token
  std::chrono::seconds patience{600};  // the longest time that the server may send nothing
};

// Times in seconds.
struct ServingReport {
  double seconds = 0.0;  // from the first request to the last reply's end
  int completed = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  base::Percentiles ttft;             // from sending the request to the first token
  base::Percentiles tpot;             // per token after the first, one value per request
  base::Percentiles itl;              // between two events with text
  base::Percentiles e2el;             // from sending the request to the last token
  std::vector<std::string> failures;  // one for each request that failed

  double requests_per_second() const { return seconds > 0 ? completed / seconds : 0.0; }
  double output_tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0.0;
  }
  double all_tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(input_tokens + output_tokens) / seconds : 0.0;
  }
};

// on_done is called after each request. Errors: those of EventStreams::open; a request that fails
// is counted in the report.
Result<ServingReport> run_serving_bench(const ServingOptions& options,
                                        const std::function<void()>& on_done);

}  // namespace wideep::measure
