// SPDX-License-Identifier: Apache-2.0
//
// What one rank process does for a benchmark, and what it tells the parent: the runs of the plan
// one after the other, and between them, on rank 0 while the others sleep, a probe of the limits
// with as many threads as all ranks have together.
#pragma once

#include <string_view>
#include <vector>

#include "engine/rank_engine.h"
#include "measure/bench_plan.h"
#include "measure/limits/limits.h"
#include "transport/rank_processes.h"

namespace wideep::measure {

// The limits that matter to the model's precision, measured before a run (and after the last one).
struct QuickLimits {
  double read_gbps = 0.0;
  double gops = 0.0;  // of the operation below
  double flag_one_way_ns = 0.0;
  limits::Operation operation = limits::Operation::kF32;
};

// What most products of these weights are made of, on a processor with these limits.
limits::Operation operation_of(kernels::WeightFormat format, const limits::Limits& limits);

// A run on one rank. Times are of the machine's monotonic clock: comparable between ranks.
struct RankRun {
  struct Iteration {
    int64_t end_ns = 0;
    engine::IterationRecord record;
  };
  int64_t start_ns = 0;
  std::vector<Iteration> iterations;
};

struct RankBenchSetup {
  const engine::RankSetup& engine;
  const BenchPlan& plan;
  std::vector<int> processors;  // to probe with
};

// Collective over the ranks. Ends early, ok, when the group was asked to stop.
Status run_rank_bench(const RankBenchSetup& setup, transport::Endpoint& endpoint,
                      const transport::MessagePipe& pipe);

// Whom read_message hands the decoded message to.
struct MessageHandler {
  std::function<void(uint64_t bytes)> on_loaded;
  std::function<void(const limits::Limits&)> on_limits;  // before the first and after the last run
  std::function<void(const QuickLimits&)> on_quick_limits;
  std::function<void(RankRun)> on_run;
};
void read_message(std::string_view message, const MessageHandler& handler);

}  // namespace wideep::measure
