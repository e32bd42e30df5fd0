// SPDX-License-Identifier: Apache-2.0
//
// `wideep bench throughput` and `latency` without their command line: the requests of a dataset,
// given to the engine in this process as wideep serve gives it those of its clients.
//
// All times are taken in the process that gave the request, when it hears of a token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/arrivals.h"
#include "measure/dataset.h"
#include "run/run_options.h"
#include "run/run_view.h"
#include "wideep/status.h"

namespace wideep::measure {

struct ThroughputOptions {
  run::RunOptions run;
  std::vector<DatasetRequest> requests;
  int warmup = 2;       // requests before, the dataset's in turn; not measured
  int concurrency = 0;  // requests at once, at most; 0: all
  Arrivals arrivals;
  std::optional<int32_t> eos_token;  // ends an answer; nothing: all have output_tokens tokens
};

// A request as who gave it saw it; times on the monotonic clock.
struct RequestTimes {
  int input_tokens = 0;
  int64_t start_ns = 0;  // given to the engine
  std::vector<int64_t> token_ns;
  std::vector<int32_t> tokens;
};

// What iterations told, summed over those of the measured requests.
struct IterationTotals {
  int64_t first = 0;  // 'iter' in the iteration log
  int64_t count = 0;
  double critical_path_ms = 0.0;
  double critical_path_experts_ms = 0.0;
  double mean_rank_ms = 0.0;
  double imbalance_ratio = 0.0;  // mean
  int64_t expert_moves = 0;      // of the whole run, warm-up included
  int64_t moved_bytes = 0;
};

// What ran.
struct RunFacts {
  std::string isa;
  std::string weights;  // "bf16"
  std::string cache;    // of keys and values
  int max_batch_size = 0;
  int max_num_tokens = 0;
  int threads_per_rank = 0;
};

struct ThroughputRun {
  RunFacts facts;
  std::vector<RequestTimes> requests;  // in the order of the dataset
  std::vector<std::string> texts;      // likewise, where there is a tokenizer
  IterationTotals iterations;
};

// What a person is shown while it goes on.
class ThroughputView : public run::RunView {
 public:
  virtual void request_done() {}  // after each measured request
};

// REQUIRES: the caller has started no thread. Errors: as run::Run::prepare; requests that do not
// fit the model; a rank failed; interrupted.
Result<ThroughputRun> run_throughput(const ThroughputOptions& options, ThroughputView& view);

}  // namespace wideep::measure
