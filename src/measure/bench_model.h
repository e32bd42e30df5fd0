// SPDX-License-Identifier: Apache-2.0
//
// `wideep bench model` without its command line: how fast a model runs on this machine, beside what
// the machine could do.
//
// The engine is the one that serves: ranks forked on this machine, scheduler, paged KV cache,
// sampling. End tokens are ignored.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "measure/bench_report.h"
#include "run/run_view.h"
#include "weights/tensor_source.h"

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

// What a person is shown while it goes on.
class ModelBenchView : public run::RunView {
 public:
  virtual void run_done(int /*done*/, int /*all*/) {}
};

// tensors: where the weights come from.
// REQUIRES: the caller has started no other thread.
// Errors: bad input (make_plan, the tensors); the model does not fit into memory; a rank failed;
// interrupted.
Result<ModelBenchReport> run_model_bench(const ModelBenchOptions& options,
                                         std::unique_ptr<weights::TensorSource> tensors,
                                         ModelBenchView& view);

}  // namespace wideep::measure
