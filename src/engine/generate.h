// SPDX-License-Identifier: Apache-2.0
//
// `wideep generate` without its command line: prompts in, texts out, over ranks forked on this
// machine or started by mpirun or srun on several.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/load_collector.h"
#include "engine/run_setup.h"
#include "recordings/routing_log.h"
#include "wideep/status.h"

namespace wideep::engine {

struct GenerateOptions : RunOptions {
  std::vector<std::string> prompts;
  int max_tokens = 64;
  SamplingParams sampling;
};

struct PromptResult {
  int num_prompt_tokens = 0;
  std::vector<int32_t> tokens;
  std::vector<float> log_probabilities;
  std::string text;
  FinishReason finish_reason = FinishReason::kNotFinished;  // not finished: the run ended before
  std::string digest;  // SHA-256 over the float32 logits of each generated step, if asked for
};

// Of a pipeline stage over a run.
struct StageReport {
  parallel::LayerRange layers;
  double idle_share = 0.0;  // of the time, that its ranks waited for other stages
};

// Where ranks are on several nodes: what crossed between them.
struct NodesReport {
  int num_nodes = 0;
  size_t row_bytes = 0, result_bytes = 0;  // of a dispatched row, of one that comes back
  NodeTraffic traffic;                     // of all ranks

  // Bytes sent over bytes of the rows that had to cross; 0 where none had to.
  double dispatch_ratio() const {
    return ratio(traffic.dispatched_bytes, traffic.dispatched_rows, row_bytes);
  }
  double combine_ratio() const {
    return ratio(traffic.returned_bytes, traffic.returned_rows, result_bytes);
  }

 private:
  static double ratio(int64_t bytes, int64_t rows, size_t row_bytes) {
    return rows == 0 ? 0.0
                     : static_cast<double>(bytes) / static_cast<double>(rows) /
                           static_cast<double>(row_bytes);
  }
};

struct GenerateReport {
  std::vector<PromptResult> results;
  std::string isa;
  double load_seconds = 0.0;
  double wall_seconds = 0.0;  // of the iterations
  LoadTotals load;
  std::vector<StageReport> stages;            // where there are several
  std::optional<NodesReport> nodes;           // where there are several
  std::optional<OnlineTotals> online;         // with online balancing
  std::vector<online::Rebalance> rebalances;  // in the order in which they ended
  std::optional<recordings::RoutingLog> routing_log;
  Status ended;  // ok, interrupted, or why the ranks failed after they had begun

  double tokens_per_second() const {
    return wall_seconds > 0 ? static_cast<double>(load.generated_tokens) / wall_seconds : 0.0;
  }
};

// What the caller shows while it goes on; each may be empty. Called in the parent process, or, of
// started ranks, in that of rank 0 (on a thread of its own once ranks run).
struct GenerateObserver {
  std::function<void(const std::string&)> on_plan;  // lines: what runs, and what it costs
  std::function<void(uint64_t done, uint64_t all)> on_loading;  // bytes of weights
  std::function<void(int prompt, const std::string& text, bool last)> on_text;
  std::function<void(int rank, const IterationRecord&)> on_iteration;
  std::function<void(const online::Rebalance&)> on_rebalance;
};

// Started ranks all call it; the report of rank 0 is the run's, those of the others are empty.
// REQUIRES: the caller has started no other thread, where ranks are forked.
// Errors: bad input and everything else that stops it before the first token; later ends are in
// GenerateReport::ended, with what was generated until then.
Result<GenerateReport> generate(const GenerateOptions& options, const GenerateObserver& observer);

}  // namespace wideep::engine
