// SPDX-License-Identifier: Apache-2.0
//
// What a rank's engine tells while it runs.
#pragma once

#include <cstdint>
#include <span>

#include "engine/iteration_record.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "wideep/status.h"

namespace wideep::engine {

enum class FinishReason : uint8_t { kNotFinished, kStop, kLength };  // an end token; max_tokens

// A token of a request. All ranks that compute the request know it; one of them tells of it.
struct SampledToken {
  int request_index = 0;
  Sampled sampled;
  FinishReason finish_reason = FinishReason::kNotFinished;
  std::span<const float> logits;         // [vocab], that the token was sampled from
  std::span<const Sampled> likely = {};  // as SamplingParams::top_log_probabilities asked for
  int cached_tokens = 0;                 // of the prompt, that others had computed
};

// The experts that this rank's tokens have chosen in one MoE layer.
struct ChosenExperts {
  int layer = 0;
  int64_t iteration = 0;
  std::span<const int32_t> experts;       // [num_tokens, top_k]
  std::span<const int32_t> counts;        // [num_experts] tokens of this rank
  std::span<const int32_t> group_counts;  // [num_experts] tokens of all ranks
  std::span<Sequence* const> owners;      // [num_tokens] whose token each is
};

// Called on the engine's thread, in the order of what happens. An error ends the run.
class Reporter {
 public:
  virtual ~Reporter() = default;

  virtual void begin_iteration(int64_t iteration) = 0;  // before ranks agree on it
  virtual void chosen(const ChosenExperts& layer) = 0;
  virtual Status token(const SampledToken& token) = 0;
  virtual Status end_iteration(IterationRecord record) = 0;  // after its tokens

  // Nobody has work any more, after requests that were held and released.
  virtual Status idle() = 0;
  // Of commands (engine/request_feed.h), in order with the iterations around them.
  virtual void report_when_idle() = 0;
  virtual Status record_experts(bool records) = 0;
};

}  // namespace wideep::engine
