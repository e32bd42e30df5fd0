// SPDX-License-Identifier: Apache-2.0
//
// `wideep bench model` without its command line: how fast a model runs on this machine, next to the
// machine's limits.
//
// It runs the same engine as `wideep serve`: ranks forked on this machine, scheduler, paged KV
// cache, sampling. End tokens are ignored.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/model/bench_report.h"
#include "run/record_request.h"
#include "run/run_view.h"
#include "weights/tensor_source.h"

namespace wideep::measure {

struct ModelBenchOptions {
  model::ModelConfig config;
  model::Precision precision = kernels::WeightFormat::kBf16;
  bool as_stored = false;  // matrices as the tensors store them; sets `precision`
  int num_ranks = 1;
  int threads_per_rank = 0;  // 0: cores / ranks, at least 1
  bool perfect_router = false;
  BenchOptions bench;
  std::chrono::milliseconds timeout{120'000};  // for any wait of a rank for another rank
  std::string model_dir = {};                  // its name, in the routing log
  std::optional<run::StatisticsRequest> statistics = {};
  std::optional<run::RoutingLogRequest> routing_log = {};
};

struct ModelBenchReport {
  std::string isa;
  int threads_per_rank = 1;
  model::ParameterCount parameters;
  uint64_t weight_bytes = 0;  // packed weights of all ranks
  double load_seconds = 0.0;
  limits::Limits limits;        // means of the first and the last probe; flag: median of all probes
  std::string formats;          // of the matrices: "int8", or "int4m, int8m"
  limits::Operation operation;  // the operation whose peak limits the experts' precision
  std::vector<TestReport> tests;
};

// Progress of the benchmark, for a terminal.
class ModelBenchView : public run::RunView {
 public:
  virtual void run_done(int /*done*/, int /*all*/) {}
};

// tensors: the source of the weights.
// REQUIRES: the caller has started no other thread.
// Errors: bad input (make_plan, the tensors); the model does not fit into memory; a rank failed;
// interrupted.
Result<ModelBenchReport> run_model_bench(const ModelBenchOptions& options,
                                         std::unique_ptr<weights::TensorSource> tensors,
                                         ModelBenchView& view);

}  // namespace wideep::measure
