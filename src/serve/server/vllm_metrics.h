// SPDX-License-Identifier: Apache-2.0
//
// vLLM's metrics, by its names, labels and buckets, so that dashboards and scalers made for it work
// here: those of its metrics that this engine can tell truthfully (docs/monitoring.md has a table).
// Kept beside wideep's own, because histograms with other buckets are other counts.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "server/histogram.h"

namespace wideep::server {

class VllmMetrics {
 public:
  // max_sequence: the longest prompt with its answer, in tokens, up to which buckets go.
  VllmMetrics(std::string model, int max_sequence);

  // Of an answer, in seconds. Steps with drafts count once, as there.
  void first_token(double since_request) { time_to_first_.add(since_request); }
  void next_token(double since_last) { inter_token_.add(since_last); }

  struct EndedAnswer {
    engine::FinishReason reason = engine::FinishReason::kStop;
    int64_t prompt_tokens = 0, generated_tokens = 0;
    int64_t cached_tokens = 0;  // of the prompt, found in the KV cache
    int64_t max_tokens = 0;     // that it might have had
    // Seconds since the request: when the prompt's turn came, the first token, the last one. nullopt:
    // another process that has died knew it.
    std::optional<double> begun, first;
    double last = 0.0;
  };
  void ended(const EndedAnswer& answer);
  // A prompt whose n answers have all ended.
  void request_ended(int n, int64_t longest_answer);
  void iteration(int64_t tokens) { iteration_tokens_.add(static_cast<double>(tokens)); }

  // What they share with wideep's own.
  struct Shared {
    int64_t running = 0, waiting = 0;  // answers, in the ranks
    double kv_share = 0.0;             // 0 to 1
    uint64_t pauses = 0;
    uint64_t prompt_tokens = 0, cached_prompt_tokens = 0, generated_tokens = 0;
    uint64_t external_queries = 0, external_hits = 0;  // tokens (beyond the KV cache)
    uint64_t cancelled = 0;                            // answers
  };
  std::string text(const Shared& all) const;
  // `model_name="…",engine="0"`: of every series.
  const std::string& labels() const { return labels_; }

 private:
  std::string labels_;
  uint64_t stopped_ = 0, at_length_ = 0;
  Histogram time_to_first_, inter_token_, per_token_;
  Histogram end_to_end_, queue_, inference_, prefill_, decode_;
  Histogram prompt_tokens_, computed_tokens_, generated_tokens_, longest_, n_, max_tokens_;
  Histogram iteration_tokens_;
};

}  // namespace wideep::server
