// SPDX-License-Identifier: Apache-2.0
//
// `wideep generate` without its command line: prompts in, texts out, over ranks forked on this
// machine.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "balance/routing_log.h"
#include "engine/engine.h"
#include "engine/load_collector.h"
#include "engine/memory_plan.h"
#include "engine/online_parts.h"
#include "engine/profile.h"
#include "engine/statistics_recorder.h"
#include "kernels/weight_format.h"
#include "parallel/parallel_config.h"
#include "wideep/status.h"

namespace wideep::engine {

struct GenerateOptions {
  std::string model_dir;
  std::vector<std::string> prompts;
  int max_tokens = 64;
  SamplingParams sampling;
  parallel::ParallelConfig parallel;  // has passed parallel::check_supported
  int threads_per_rank = 0;           // 0: cores / ranks, at least 1
  // Of matrices; nothing: as they are stored, floats in bf16.
  std::optional<kernels::WeightFormat> format;
  int prefill_chunk = 0;  // 0: max_num_tokens
  bool logits_digest = false;
  std::optional<StatisticsRequest> statistics;
  std::optional<ProfileRequest> profile;
  bool routing_log = false;
  bool perfect_router = false;                      // see model::MoeOptions; the texts mean nothing
  std::function<void(OnlineParts&)> adjust_online;  // for tests: called before the ranks start
  std::chrono::milliseconds timeout{30'000};        // of any wait of a rank for another

  Dtype cache_dtype() const {
    return engine::cache_dtype(parallel.kv_cache_config.dtype,
                               format.value_or(kernels::WeightFormat::kBf16));
  }
};

struct PromptResult {
  int num_prompt_tokens = 0;
  std::vector<int32_t> tokens;
  std::vector<float> log_probabilities;
  std::string text;
  FinishReason finish_reason = FinishReason::kNotFinished;  // not finished: the run ended before
  std::string digest;  // SHA-256 over the float32 logits of each generated step, if asked for
};

struct GenerateReport {
  std::vector<PromptResult> results;
  std::string isa;
  double load_seconds = 0.0;
  double wall_seconds = 0.0;  // of the iterations
  LoadTotals load;
  std::optional<OnlineTotals> online;         // with online balancing
  std::vector<online::Rebalance> rebalances;  // in the order in which they ended
  std::optional<balance::RoutingLog> routing_log;
  Status ended;  // ok, interrupted, or why the ranks failed after they had begun

  double tokens_per_second() const {
    return wall_seconds > 0 ? static_cast<double>(load.generated_tokens) / wall_seconds : 0.0;
  }
};

// What the caller shows while it goes on; each may be empty. Called in the parent process.
struct GenerateObserver {
  std::function<void(const std::string&)> on_plan;  // lines: what runs, and what it costs
  std::function<void(uint64_t done, uint64_t all)> on_loading;  // bytes of weights
  std::function<void(int prompt, const std::string& text, bool last)> on_text;
  std::function<void(int rank, const IterationRecord&)> on_iteration;
  std::function<void(const online::Rebalance&)> on_rebalance;
};

// REQUIRES: the caller has started no other thread.
// Errors: bad input and everything else that stops it before the first token; later ends are in
// GenerateReport::ended, with what was generated until then.
Result<GenerateReport> generate(const GenerateOptions& options, const GenerateObserver& observer);

}  // namespace wideep::engine
