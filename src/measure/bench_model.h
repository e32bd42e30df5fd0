// SPDX-License-Identifier: Apache-2.0
//
// `wideep bench model` without its command line: how fast a model runs on this machine, beside what
// the machine could do.
//
// The engine is the one that serves: ranks forked on this machine, scheduler, paged KV cache,
// sampling. End tokens are ignored.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "measure/bench_report.h"

namespace wideep::measure {

struct ModelBenchOptions {
  model::ModelConfig config;
  Precision precision = kernels::WeightFormat::kBf16;
  int num_ranks = 1;
  int threads_per_rank = 0;  // 0: cores / ranks, at least 1
  BenchOptions bench;
  std::chrono::milliseconds timeout{120'000};  // of any wait of a rank for another
};

struct ModelBenchReport {
  std::string isa;
  int threads_per_rank = 1;
  ParameterCount parameters;
  uint64_t weight_bytes = 0;  // packed, of all ranks
  double load_seconds = 0.0;
  limits::Limits limits;        // means of the first probe and the last; flag: median of all
  limits::Operation operation;  // whose peak bounds this precision
  std::vector<TestReport> tests;
};

// What the caller shows while it goes on; each may be empty. Called in the parent process.
struct ModelBenchObserver {
  std::function<void(uint64_t done, uint64_t all)> on_loading;  // bytes of tensors
  std::function<void(int done, int all)> on_run;
};

// tensors: where the weights come from; outlives the call.
// REQUIRES: the caller has started no other thread.
// Errors: bad input (make_plan, the tensors); the model does not fit into memory; a rank failed;
// interrupted.
Result<ModelBenchReport> run_model_bench(const ModelBenchOptions& options,
                                         const weights::TensorSource& tensors,
                                         const ModelBenchObserver& observer);

}  // namespace wideep::measure
