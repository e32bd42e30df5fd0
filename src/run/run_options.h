// SPDX-License-Identifier: Apache-2.0
//
// What a caller asks of a run: which model, spread how, and what is written down meanwhile.
//
// Thread safety: a plain value.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "kernels/weight_format.h"
#include "parallel/parallel_config.h"
#include "run/online_parts.h"
#include "run/profile.h"
#include "run/statistics_recorder.h"
#include "transport/started_ranks.h"

namespace wideep::run {

struct RunOptions {
  std::string model_dir;
  // Made-up weights from this seed, to measure speed: of the directory only config.json and
  // tokenizer.json are read, or model_dir is a config.json itself.
  std::optional<uint64_t> random_weights;
  bool needs_tokenizer = true;        // false: requests are token ids, the model may have none
  parallel::ParallelConfig parallel;  // has passed parallel::check_supported
  int threads_per_rank = 0;           // 0: cores / ranks, at least 1
  // Of matrices; nothing: as they are stored, floats in bf16.
  std::optional<kernels::WeightFormat> format;
  int prefill_chunk = 0;  // tokens; 0: max_num_tokens
  // Pages of a rank's KV cache, where kv_cache_config.max_tokens does not say: as many as the
  // requests need that the caller has; nothing: as many as full sequences that run at once need,
  // and cache_share of the free memory allows.
  std::optional<int> cache_pages;
  double cache_share = 0.3;
  bool perfect_router = false;  // see model::MoeOptions; the texts mean nothing
  // Of any wait of a rank for another.
  std::chrono::milliseconds timeout{30'000};
  // The ranks that mpirun or srun has started, this process among them; null: ranks are forked.
  transport::StartedRanks* started = nullptr;

  // ---- what is written down ----
  bool logits_digest = false;  // SHA-256 of each request's logits
  bool routing_log = false;
  std::optional<StatisticsRequest> statistics;
  std::optional<ProfileRequest> profile;
  std::string iteration_log;  // file (run/iteration_log.h); empty: none

  // For tests: called for each pipeline stage that balances, before the ranks start.
  std::function<void(OnlineParts&)> adjust_online;

  // Whether requests that begin alike share pages of the cache. A routing log wants the experts of
  // every token, also of those that sharing would not compute again.
  bool reuses_pages() const { return parallel.kv_cache_config.enable_block_reuse && !routing_log; }
};

// Whether this process hears from the ranks: the parent of forked ranks, or rank 0 of started ones.
inline bool hears_from_ranks(const RunOptions& options) {
  return options.started == nullptr || options.started->rank() == 0;
}

}  // namespace wideep::run
