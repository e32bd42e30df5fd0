// SPDX-License-Identifier: Apache-2.0
#include "run/iteration_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/try.h"
#include "formats/json_text.h"
#include "kernels/kv_page.h"

namespace wideep::run {
namespace {

std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(microseconds / 1'000'000),
                     microseconds % 1'000'000);
}

nlohmann::ordered_json cache_json(const engine::QueueRecord& queue) {
  return {{"maxNumBlocks", queue.max_pages},
          {"usedNumBlocks", queue.cache_pages},
          {"freeNumBlocks", queue.max_pages - queue.cache_pages},
          {"keptNumBlocks", queue.kept_pages},
          {"reusedBlocks", queue.reused_tokens / kernels::kPageTokens},
          {"evictedBlocks", queue.evicted_pages},
          {"tokensPerBlock", kernels::kPageTokens}};
}

nlohmann::ordered_json batch_json(const IterationSummary& summary) {
  const engine::QueueRecord& queue = summary.queue;
  return {{"numScheduledRequests", queue.scheduled},
          {"numContextRequests", queue.prompts},
          {"numGenRequests", queue.scheduled - queue.prompts},
          {"numPausesTotal", queue.pauses},
          {"numCtxTokens", summary.prompt_tokens},
          {"numGeneratedTokens", summary.generated_tokens}};
}

}  // namespace

Result<IterationLog> IterationLog::create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return invalid_input(
        fmt::format("--iteration-log {}: cannot be written: {}", path, std::strerror(errno)));
  }
  return IterationLog(path, file);
}

void IterationLog::add(const online::Rebalance& rebalance) {
  moves_ += rebalance.moves;
  moved_bytes_ += rebalance.bytes;
}

void IterationLog::add(const IterationSummary& summary) {
  const nlohmann::ordered_json line = {{"timestamp", utc_now()},
                                       {"iter", summary.iteration},
                                       {"iterLatencyMS", summary.wall_ms},
                                       {"numActiveRequests", summary.queue.running},
                                       {"numQueuedRequests", summary.queue.waiting},
                                       {"kvCacheStats", cache_json(summary.queue)},
                                       {"inflightBatchingStats", batch_json(summary)},
                                       {"imbalanceRatio", summary.imbalance_ratio()},
                                       {"criticalPathMS", summary.critical_path_ms},
                                       {"criticalPathExpertsMS", summary.critical_path_experts_ms},
                                       {"meanRankMS", summary.mean_rank_ms},
                                       {"expertMoves", std::exchange(moves_, 0)},
                                       {"movedBytes", std::exchange(moved_bytes_, 0)}};
  if (!status_.ok()) return;
  const std::string text = formats::json_text(line) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    status_ = failed(
        fmt::format("--iteration-log {}: cannot be written: {}", path_, std::strerror(errno)));
  }
}

Result<std::optional<IterationLog>> create_iteration_log(const RunOptions& options) {
  if (options.iteration_log.empty() || !receives_events(options))
    return std::optional<IterationLog>();
  WIDEEP_TRY_ASSIGN(IterationLog log, IterationLog::create(options.iteration_log));
  return std::optional<IterationLog>(std::move(log));
}

}  // namespace wideep::run
