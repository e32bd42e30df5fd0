// SPDX-License-Identifier: Apache-2.0
//
// `wideep bench throughput` and `latency` without their command line: submits the requests of a
// dataset to the engine in the same way as `wideep serve` submits those of its clients, but without
// HTTP.
//
// All times are taken in the process that submits the requests, when it receives a token's event.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "advise/arrivals.h"
#include "measure/serving/dataset.h"
#include "run/run_options.h"
#include "run/run_view.h"
#include "run/speculation_totals.h"
#include "schedule/request.h"
#include "wideep/status.h"

namespace wideep::measure {

struct ThroughputOptions {
  run::RunOptions run;
  std::vector<DatasetRequest> requests;
  int warmup = 2;       // requests before the measured ones, from the start of the dataset
  int concurrency = 0;  // most requests at the same time; 0: no limit
  advise::Arrivals arrivals;
  std::optional<int32_t> eos_token;  // ends an answer; nothing: answers have output_tokens tokens
  engine::SamplingParams sampling;   // of every request
  bool decodes = false;              // texts of the answers also where no prompt is a text
  // The measured requests begin when so many wait, all in one iteration; 0: each at once. Capped to
  // what can run at the same time.
  int start_queue = 0;
};

// A request as its submitter sees it; times of the monotonic clock.
struct RequestTimes {
  int input_tokens = 0;
  int64_t start_ns = 0;  // when it was submitted
  std::vector<int64_t> token_ns;
  std::vector<int32_t> tokens;
};

// Sums over the iterations of the measured requests.
struct IterationTotals {
  int64_t first = 0;  // 'iter' in the iteration log
  int64_t count = 0;
  double critical_path_ms = 0.0;
  double critical_path_experts_ms = 0.0;
  double mean_rank_ms = 0.0;
  double imbalance_ratio = 0.0;  // mean
  int64_t expert_moves = 0;      // in the whole run, including the warm-up
  int64_t moved_bytes = 0;
  run::SpeculationTotals speculation;
};

// Settings of the run that the report names.
struct RunFacts {
  std::string isa;
  std::string weights;  // "bf16"
  std::string cache;    // dtype of keys and values
  int max_batch_size = 0;
  int max_num_tokens = 0;
  int threads_per_rank = 0;
};

struct ThroughputRun {
  RunFacts facts;
  std::vector<RequestTimes> requests;  // in the order of the dataset
  std::vector<std::string> texts;      // in the same order; empty without a tokenizer
  IterationTotals iterations;
};

// Progress of the benchmark, for a terminal.
class ThroughputView : public run::RunView {
 public:
  virtual void request_done() {}  // after each measured request
  // ThroughputOptions::start_queue, as it was capped.
  virtual void waits_for(int /*requests*/) {}
};

// REQUIRES: the caller has started no thread (ranks are forked). Errors: those of
// run::Run::prepare; requests that do not fit the model; a rank failed; interrupted.
Result<ThroughputRun> run_throughput(const ThroughputOptions& options, ThroughputView& view);

}  // namespace wideep::measure
