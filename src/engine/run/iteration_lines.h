// SPDX-License-Identifier: Apache-2.0
//
// print_iter_log: a line on stderr for each iteration, in the form of TensorRT-LLM's log
// (tensorrt_llm/_torch/pyexecutor/py_executor.py), which its users' scripts read:
//
//   iter = 7, global_rank = 0, rank = 0, num_scheduled_requests = 3, adp_dummy_ctx_tokens = 0,
//   adp_dummy_gen_tokens = 0, kv_cache_util = 0.625, currank_total_requests = 4/9, host_step_time =
//   1.5ms, prev_device_step_time = N/A, timestamp = 2026-11-29 00:30:12, states =
//   {'num_ctx_requests': 1, 'num_ctx_tokens': 20, 'num_generation_tokens': 2}
//
// in one line. currank_total_requests counts the requests that the rank has at that time, and those
// of all ranks; TensorRT-LLM's count those that have come since the start. There are no dummy
// requests and no device.
//
// Not thread safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/mapping.h"
#include "run/event.h"
#include "run/run_options.h"

namespace wideep::run {

// The line of one rank. index: among iteration.ranks.
std::string iteration_line(const Iteration& iteration, size_t index,
                           const parallel::Mapping& mapping, std::string_view timestamp);

class IterationLines {
 public:
  // nullopt: the options ask for none, or this process does not receive the events.
  static std::optional<IterationLines> create(const RunOptions& options);

  // Logs the lines of the ranks that are wanted (RunOptions::printing_ranks).
  void print(const Iteration& iteration) const;

 private:
  IterationLines(const parallel::Mapping& mapping, std::optional<std::vector<int>> ranks)
      : mapping_(mapping), ranks_(std::move(ranks)) {}

  parallel::Mapping mapping_;
  std::optional<std::vector<int>> ranks_;  // nullopt: all
};

}  // namespace wideep::run
