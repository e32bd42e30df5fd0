// SPDX-License-Identifier: Apache-2.0
//
// Measures a server with OpenAI's completions or chat endpoint as its clients see it: wideep's or
// another. Figures are defined as by TensorRT-LLM's benchmark_serving.
//
// Each request is sent at its arrival time, but not before fewer than max_concurrency requests are
// under way, over a connection of its own. Token times are the arrival times of events: a token
// that the server holds back, or sends together with others, counts as late.
//
// Thread safety: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "advise/arrivals.h"
#include "base/percentiles.h"
#include "client/event_stream.h"
#include "measure/serving/dataset.h"
#include "wideep/status.h"

namespace wideep::measure {

enum class ServingApi { kCompletions, kChat };

struct ServingOptions {
  client::HttpAddress address;
  ServingApi api = ServingApi::kCompletions;
  std::string endpoint = "/v1/completions";
  std::string model;
  std::vector<DatasetRequest> requests;  // for kChat only texts
  int max_concurrency = 32;
  advise::Arrivals arrivals;
  bool streams = true;     // false: a reply is one piece, without times of tokens
  bool ignore_eos = true;  // asks for output_tokens tokens even after an end token
  double temperature = 0.0;
  std::optional<double> top_p, min_p;  // nothing: not sent
  std::optional<int> top_k, logprobs;
  bool keeps_texts = false;            // of the replies
  std::chrono::seconds patience{600};  // the longest time that the server may send nothing
};

// A request as its client sees it; times in seconds.
struct ServedRequest {
  Status status;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  double ttft = 0.0;        // from sending the request to the first chunk with choices
  std::vector<double> itl;  // between one such chunk and the next, whatever text they have
  double e2el = 0.0;        // to the last such chunk; of a reply in one piece to its end
  std::string text;         // ServingOptions::keeps_texts

  // Per token after the first; 0 where there is none.
  double tpot() const {
    return output_tokens > 1 ? (e2el - ttft) / static_cast<double>(output_tokens - 1) : 0.0;
  }
};

// Times in seconds. What has no value, as TTFT of replies in one piece, is all zero.
struct ServingReport {
  double seconds = 0.0;  // from the first request to the last reply's end
  int completed = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  base::Percentiles ttft;
  base::Percentiles tpot;  // of requests with more than one token
  base::Percentiles itl;
  base::Percentiles e2el;
  std::vector<ServedRequest> requests;  // in the order of ServingOptions::requests
  std::vector<std::string> failures;    // one for each request that failed

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
