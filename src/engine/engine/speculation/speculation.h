// SPDX-License-Identifier: Apache-2.0
//
// Speculation of one rank: after a step it drafts what may follow the tokens of each request, and
// decides how much of it the next step verifies: as many tokens as the settings say, or (adaptive)
// as many as are expected to pay (draft_lengths.h), from what was right before (acceptance.h) and
// what steps have cost (step_time.h).
//
// Ranks that compute the same requests must draft alike: everything here depends on the calls
// alone, and times that ranks measure are agreed on before they are observed.
//
// Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/speculation/acceptance.h"
#include "engine/speculation/draft_lengths.h"
#include "engine/speculation/drafter.h"
#include "engine/speculation/relaxed_acceptance.h"
#include "engine/speculation/step_time.h"
#include "engine/speculation/verified.h"
#include "schedule/request.h"

namespace wideep::engine {

struct SpeculationOptions {
  enum class Method { kNone, kNgram, kSuffix, kMtp };

  Method method = Method::kNone;
  int max_draft_len = 0;  // tokens of a request in a step
  NgramOptions ngram = {};
  bool is_public_pool = true;
  size_t max_pool_bytes = size_t{64} << 20;
  // Above so many requests in a step nothing is drafted.
  std::optional<int> max_concurrency = {};
  // Batch size → draft length, at most max_draft_len: the entry with the largest size that the
  // step's requests reach. Empty: max_draft_len.
  std::map<int, int> draft_len_schedule = {};
  // Nothing is drafted any more once the steps of the last acceptance_window requests that verified
  // drafts have accepted fewer of them on average than the threshold (TensorRT-LLM).
  std::optional<int> acceptance_window = {};
  double acceptance_length_threshold = 0.0;
  // Likewise once the last acceptance_rate_window steps that verified drafts have accepted a smaller
  // share of them, in the mean over steps, than the threshold.
  std::optional<int> acceptance_rate_window = {};
  double acceptance_rate_threshold = 0.0;
  // With kMtp: drafts of the suffix drafter come first where they follow from a match of at least
  // so many tokens.
  std::optional<int> suffix_threshold = {};
  std::optional<RelaxedAcceptance> relaxed = {};  // changes answers
  // Verify what is expected to pay, up to these lengths.
  bool is_adaptive = false;
  StepTimeOptions step_time = {};
  // For tests: another drafter than the method's.
  std::function<std::unique_ptr<Drafter>()> make_drafter = {};

  bool is_on() const { return method != Method::kNone; }
  // Whether the model's prediction layer drafts.
  bool predicts() const { return method == Method::kMtp; }
};

class Speculation {
 public:
  // max_running: requests at the same time. num_experts, top_k: of the model's MoE layers.
  // REQUIRES: options.is_on().
  Speculation(const SpeculationOptions& options, int max_running, int num_experts, int top_k);

  // What a step has yielded for a sequence, to which it has not been appended yet.
  struct Continuation {
    const Sequence* sequence = nullptr;
    std::span<const int32_t> tokens;          // none: it has failed, and ends
    bool ends = false;                        // the request ends with them
    std::span<const int32_t> predicted = {};  // drafts of the prediction layer
  };
  // How many drafts may follow a sequence's next `yielded` tokens: the step after the drafts yields
  // one token more than it accepts, of those that the request may still generate.
  static int max_drafts(const Sequence& sequence, int yielded);
  // The most drafts of a request in a step with so many requests that generate.
  int length_for(int batch_size) const;
  // What the next step of these sequences verifies. In the order of the sequences: a pool that
  // requests share depends on it.
  std::vector<std::vector<int32_t>> draft(std::span<const Continuation> step);
  // What is expected of a step that verifies the drafts of the last draft(); adaptive only.
  const Forecast& forecast() const { return forecast_; }
  // The request has ended. No effect if it is not known.
  void end(int request);

  // For adaptive lengths: the time of a step of generating requests, and its experts that were not
  // in memory, mean over the MoE layers; the tokens per expert in the MoE layer with this index, in
  // one iteration.
  void observe(int tokens, double seconds, double misses = 0.0);
  void add_counts(int layer, std::span<const int32_t> counts);
  bool is_adaptive() const { return options_.is_adaptive; }

  // Of the drafter, as it was at most 64 steps ago.
  size_t bytes() const { return bytes_; }
  // Too few drafts were right: nothing is drafted any more.
  bool has_given_up() const { return gave_up_; }

 private:
  struct Known {
    size_t seen = 0;  // tokens that the drafter has
    int64_t verifying_steps = 0;
    int64_t accepted = 0;      // drafts, in these
    bool is_followed = false;  // a draft is compared with the text
  };
  void note_acceptance(double accepted);
  void note_rate(std::span<const Continuation> step);
  void give_up();
  void expect(std::span<const Continuation> step, size_t index, bool late) const;
  Draft draft(const Continuation& one, int max);
  Draft draft_after(const Continuation& one, std::span<const int32_t> added, int max);
  void cut(std::span<const Continuation> step, std::vector<Draft>& drafts);
  bool probes(const DraftLengths& chosen, const DraftLengths& likely);

  SpeculationOptions options_;
  std::unique_ptr<Drafter> drafter_;  // null: gave up, or only the prediction layer drafts
  std::unordered_map<int, Known> requests_;
  std::deque<double> accepted_;  // drafts per step that verified some, of the last requests
  std::deque<double> rates_;     // shares of right drafts, of the last steps that verified some
  bool gave_up_ = false;
  std::vector<int32_t> added_;

  Acceptance acceptance_;
  ExpertSpread spread_;
  StepTime step_time_;
  int steps_to_probe_, probe_interval_;
  int64_t num_observed_ = 0, num_drafted_ = 0;  // steps
  size_t bytes_ = 0;
  Forecast forecast_;
};

}  // namespace wideep::engine
