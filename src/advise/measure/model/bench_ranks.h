// SPDX-License-Identifier: Apache-2.0
//
// Ranks of a model that only benchmarks use: with weights of any source, end tokens ignored, no
// pages shared between requests, and the tokens of each expert recorded.
//
//   WIDEEP_TRY_ASSIGN(const auto ranks, BenchRanks::start(options, std::move(tensors), view));
//   WIDEEP_TRY_ASSIGN(const auto iterations, ranks->run(requests));
//   return ranks->finish();
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/model_work.h"
#include "parallel/parallel_config.h"
#include "run/rank_group.h"
#include "run/run.h"
#include "run/run_view.h"
#include "schedule/request.h"
#include "schedule/scheduler_limits.h"
#include "weights/tensor_source.h"

namespace wideep::measure {

struct BenchRanksOptions {
  model::ModelConfig config;
  model::Precision precision = kernels::WeightFormat::kBf16;
  bool as_stored = false;             // matrices stay in their formats, which precision.forms has
  parallel::ParallelConfig parallel;  // limits and the cache's dtype are set by the others
  engine::SchedulerLimits limits;     // of each rank
  int threads_per_rank = 0;           // 0: cores / ranks, at least 1
  std::chrono::milliseconds timeout{120'000};  // for any wait of a rank for another rank
  std::optional<run::StatisticsRequest> statistics = {};
  std::optional<run::RoutingLogRequest> routing_log = {};
  std::string model_dir = {};  // its name, in the routing log
  bool perfect_router = false;
};

// Requests with prompts of `prompt` random tokens each, which the seed determines, and `tokens` to
// generate.
std::vector<engine::Request> random_requests(int count, int prompt, int tokens, int vocabulary,
                                             uint32_t seed);

class BenchRanks {
 public:
  // loading: gets the progress of reading weights. prepared: is called with the run before anything
  // is loaded. REQUIRES: the caller has started no other thread.
  // Errors: settings that do not fit the model; it does not fit into memory; a rank failed.
  static Result<std::unique_ptr<BenchRanks>> start(
      const BenchRanksOptions& options, std::unique_ptr<weights::TensorSource> tensors,
      run::RunView& view, const std::function<void(const run::Run&)>& prepared = {});

  const run::Run& prepared() const { return *run_; }

  // All requests together; returns their iterations. The ranks send their records only when idle,
  // so that sending does not disturb the run. Errors: a rank failed; interrupted.
  Result<std::vector<run::Iteration>> run(std::vector<engine::Request> requests);

  // Ends the ranks. Errors: a rank failed.
  Status finish();

 private:
  BenchRanks() = default;
  Result<run::Event> next_event();

  run::RunOptions options_;  // of run_
  std::unique_ptr<run::Run> run_;
  std::unique_ptr<run::RankGroup> group_;
};

}  // namespace wideep::measure
