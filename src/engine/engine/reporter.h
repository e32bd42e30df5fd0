// SPDX-License-Identifier: Apache-2.0
//
// What a rank's engine reports while it runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/iteration_record.h"
#include "engine/sampler.h"
#include "schedule/page_changes.h"
#include "schedule/request.h"
#include "schedule/role.h"
#include "wideep/status.h"

namespace wideep::engine {

// kStop: an end token, or the request was cancelled. kLength: max_tokens were generated. kFailed:
// no token; nobody goes on with the request (run::RankDied::failed). kNotNumbers: no token; the
// model has computed logits that are no numbers, from which nothing follows. kExpertLost: no token;
// an expert that the request's tokens have chosen could not be read.
enum class FinishReason : uint8_t {
  kNotFinished,
  kStop,
  kLength,
  kFailed,
  kNotNumbers,
  kExpertLost,
};

// Whether the request ends by itself without a token (kNoToken).
inline bool has_no_token(FinishReason reason) {
  return reason == FinishReason::kNotNumbers || reason == FinishReason::kExpertLost;
}

// A token of a request; with has_no_token(), that there is none. Of the ranks that compute
// the request, one reports it.
struct SampledToken {
  int request_index = 0;
  Sampled sampled;
  FinishReason finish_reason = FinishReason::kNotFinished;
  std::span<const float> logits;         // [vocab] the token was sampled from them
  std::span<const Sampled> likely = {};  // [SamplingParams::top_log_probabilities]
  int cached_tokens = 0;                 // prompt tokens that were found in the KV cache
  // The drafts that the step verified which yielded the token; −1: it is not the step's first.
  int step_drafts = 0;
};

// How far a request's prompt has come, of those with Request::reports_progress: when its first
// chunk begins, and after each iteration with a chunk of it. Until its first token; it may begin
// again where the request was paused or another rank goes on with it. Of the ranks that compute the
// request, one reports it: that which reports its tokens.
struct PromptProgress {
  int request_index = 0;
  int processed = 0;      // tokens of the prompt whose keys and values are in the cache
  int total = 0;          // tokens of the prompt
  int cached = 0;         // of `processed`, those that were found there
  bool is_first = false;  // nothing of it was computed before
};

// The experts that this rank's tokens have chosen in one MoE layer.
struct ChosenExperts {
  int layer = 0;
  int64_t iteration = 0;
  std::span<const int32_t> experts;       // [num_tokens, top_k]
  std::span<const int32_t> counts;        // [num_experts] tokens of this rank
  std::span<const int32_t> group_counts;  // [num_experts] tokens of all ranks
  std::span<Sequence* const> owners;      // [num_tokens] the sequence of each token
  // [num_tokens] the position of each in its sequence; empty for a prediction layer, whose tokens
  // are those of other positions.
  std::span<const int32_t> positions;
};

// Called on the engine's thread, in the order of events. An error ends the run.
class Reporter {
 public:
  virtual ~Reporter() = default;

  // Before the ranks agree on the iteration; called again with the same number if it has no tokens.
  virtual void begin_iteration(int64_t iteration) = 0;
  virtual void chosen(const ChosenExperts& layer) = 0;
  virtual Status token(const SampledToken& token) = 0;
  virtual Status prompt(const PromptProgress& progress) = 0;
  virtual Status end_iteration(IterationRecord record) = 0;  // after its tokens
  // A request has ended, or was cancelled: on every rank that computes it, after its last token.
  virtual Status ended(int request_index) = 0;
  // What has happened to the known pages of the cache (EngineParts::tells_pages).
  virtual Status pages_changed(std::vector<PageChange> changes) = 0;

  // Requests were held and released, and now no rank has work.
  virtual Status idle() = 0;
  // For the commands kReportWhenIdle, kRecordExperts, kEndRecord and kRole (engine/command.h), in
  // order with the iterations around them. number: of the latter three, which may be repeated.
  virtual void report_when_idle() = 0;
  virtual Status record_experts(bool records, int number) = 0;
  virtual Status prefers(Role role, int number) = 0;
};

}  // namespace wideep::engine
