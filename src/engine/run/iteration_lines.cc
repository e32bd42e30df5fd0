// SPDX-License-Identifier: Apache-2.0
#include "run/iteration_lines.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"

namespace wideep::run {
namespace {

std::string local_now() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

std::string cache_use(const engine::QueueRecord& queue) {
  if (queue.max_pages == 0) return "N/A";
  return fmt::format("{:.3f}", static_cast<double>(queue.cache_pages) / queue.max_pages);
}

}  // namespace

std::string iteration_line(const Iteration& iteration, size_t index,
                           const parallel::Mapping& mapping, std::string_view timestamp) {
  const engine::IterationRecord& record = iteration.ranks[index];
  const engine::QueueRecord& queue = record.queue;
  int64_t requests = 0;
  for (const engine::IterationRecord& each : iteration.ranks) {
    requests += each.queue.running + each.queue.waiting;
  }
  // A request that generates computes its next token and those that it verifies.
  int64_t generation_tokens = queue.scheduled - queue.prompts;
  for (const engine::Verified& each : record.verified) generation_tokens += each.drafted;
  const int rank = iteration.rank(index);
  return fmt::format(
      "iter = {}, global_rank = {}, rank = {}, num_scheduled_requests = {}, "
      "adp_dummy_ctx_tokens = 0, adp_dummy_gen_tokens = 0, kv_cache_util = {}, "
      "currank_total_requests = {}/{}, host_step_time = {}ms, prev_device_step_time = N/A, "
      "timestamp = {}, states = {{'num_ctx_requests': {}, 'num_ctx_tokens': {}, "
      "'num_generation_tokens': {}}}",
      record.iteration, rank, mapping.coordinates(rank).tp_rank, queue.scheduled, cache_use(queue),
      queue.running + queue.waiting, requests, static_cast<double>(record.wall_ns) / 1e6, timestamp,
      queue.prompts, record.prompt_tokens, generation_tokens);
}

std::optional<IterationLines> IterationLines::create(const RunOptions& options) {
  if (!options.parallel.print_iter_log || !receives_events(options)) return std::nullopt;
  return IterationLines(options.parallel.mapping(), options.printing_ranks);
}

void IterationLines::print(const Iteration& iteration) const {
  const std::string timestamp = local_now();
  for (size_t i = 0; i < iteration.ranks.size(); ++i) {
    const int rank = iteration.rank(i);
    if (ranks_ && std::ranges::find(*ranks_, rank) == ranks_->end()) continue;
    log::info("{}", iteration_line(iteration, i, mapping_, timestamp));
  }
}

}  // namespace wideep::run
