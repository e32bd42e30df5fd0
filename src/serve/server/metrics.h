// SPDX-License-Identifier: Apache-2.0
//
// Totals and gauges of the server in Prometheus' text format 0.0.4.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "run/speculation_totals.h"
#include "schedule/queue_record.h"
#include "server/histogram.h"
#include "server/recent_times.h"
#include "server/vllm_metrics.h"

namespace wideep::server {

struct Metrics {
  std::map<std::pair<std::string, int>, uint64_t> replies;  // by path and status
  bool draining = false;                                    // requests are refused for now
  int64_t running = 0;                                      // answers that are being generated
  uint64_t cancelled = 0;                                   // answers whose client has left
  uint64_t prompt_tokens = 0;                               // of each answer's prompt
  uint64_t cached_prompt_tokens = 0;                        // of these, found in the KV cache
  uint64_t computed_prompt_tokens = 0;  // the others, of answers that have begun
  uint64_t cached_prompts = 0;          // answers whose prompt had cached tokens
  uint64_t generated_tokens = 0;
  // Answers that begin otherwise than at the server that has computed their prompt.
  uint64_t differing_first_tokens = 0;
  Histogram time_to_first_token{{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60}};
  Histogram inter_token{{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1}};
  // The latest times to first token and between tokens; `at`: seconds since 1970.
  RecentTimes recent_first, recent_between;
  Histogram end_to_end{{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}};

  // The engine's numbers, from the ranks' events.
  uint64_t iterations = 0;
  double iteration_seconds = 0.0;
  engine::QueueRecord queue;  // of the last iteration, over all ranks
  uint64_t evictions = 0;     // of kept pages, by all ranks that there have been
  uint64_t pauses = 0;        // of requests, likewise
  run::SpeculationTotals speculation;
  bool speculates = false;  // whether the run does
  uint64_t expert_moves = 0;
  uint64_t moved_bytes = 0;
  uint64_t rebalances = 0;

  std::optional<VllmMetrics> vllm;  // nullopt: not asked for

  // Another process has died: what ranks have counted until their next iteration was its to count.
  void go_on() { goes_on_ = true; }
  // Of an iteration that has ended, over all ranks.
  void take(const engine::QueueRecord& now);
  // The queue, with what the ranks do not report: that nothing runs any more.
  engine::QueueRecord queue_now() const;
  // Of the KV caches' pages, those of running requests: 0 to 1.
  double kv_share() const;
  // wideep's own names, and what has only another engine's.
  std::string text() const;
  // vLLM's names; "": not asked for. fetched: tokens of prompts that came from places beyond the KV
  // caches; nullopt: there are none.
  std::string vllm_text(std::optional<uint64_t> fetched = {}) const;

 private:
  bool goes_on_ = false;  // and no iteration has ended since

  // vLLM's counters of speculation; labels: of each series, or "".
  std::string vllm_speculation(std::string_view labels) const;
};

}  // namespace wideep::server
