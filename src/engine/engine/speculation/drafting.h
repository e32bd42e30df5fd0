// SPDX-License-Identifier: Apache-2.0
//
// The drafts of an engine's steps, along the engine's way through an iteration:
//
//   begin_step → say → (the ranks agree) → hear → (forward, sample) → draft → end_step
//
// The passes of prediction layers are collective, so their number and rows are agreed on before the
// step is sampled. What steps have cost, from which adaptive draft lengths follow, is agreed on as
// well: ranks that compute the same requests must draft alike.
//
// A rank that does not draft has one of these too. It says what the others need, and does nothing
// else.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/iteration_recorder.h"
#include "engine/rank_state.h"
#include "engine/speculation/mtp_drafter.h"
#include "engine/speculation/speculation.h"
#include "engine/speculation/verified.h"
#include "engine/verifier.h"
#include "engine/yield.h"
#include "residency/residency_counts.h"

namespace wideep::engine {

class Drafting {
 public:
  // speculation: null on a rank that does not draft. All outlive this.
  Drafting(const EngineParts& parts, Speculation* speculation, IterationRecorder& recorder);

  // What prediction layers will do after the step that has been scheduled.
  void begin_step(const Scheduler::Step& step);
  // Adds that, and what the last step has cost, to what this rank tells the others.
  void say(RankState* state) const;
  // ranks: [ranks of the stage] what all have told.
  void hear(std::span<const RankState> ranks);

  // verdicts: [step.sampled] on this step's tokens. Fills the drafts of the yields, [step.sampled].
  // Collective, and also called without tokens, if prediction layers draft.
  Status draft(const Scheduler::Step& step, std::span<const std::vector<Verdict>> verdicts,
               int64_t iteration, std::vector<Yield>* yields);
  // The step has taken so long. Once for each step that has been computed. record: gets what this
  // part has to tell of it; null: nobody reads it.
  void end_step(const Scheduler::Step& step, int64_t ns, IterationRecord* record);

  // The request has ended. No effect if it is not known.
  void end(int request);

 private:
  // A computed step. tokens: 0: none, or its cost has been told.
  struct Cost {
    int tokens = 0;
    uint64_t us = 0;  // 0: not measured
    bool had_prompts = false;
    double misses = 0.0;  // experts of this rank that were not in memory, mean over layers
  };
  void observe(const Cost& last, std::span<const RankState> ranks);
  residency::ResidencyCounts counts() const;
  double take_misses();
  Status predict(const Scheduler::Step& step, std::span<const std::vector<Verdict>> verdicts,
                 int64_t iteration, std::span<const Yield> yields);

  const EngineParts& parts_;
  Speculation* speculation_;            // null: nothing is drafted
  std::optional<MtpDrafter> mtp_;       // if the model's prediction layers draft
  MtpDrafter::Passes passes_;           // of this step
  int max_drafts_ = 0;                  // of prediction layers after this step
  Cost last_;                           // this rank's last step
  residency::ResidencyCounts counted_;  // up to the last step
  std::vector<Verified> verified_;      // this step's sequences with drafts
  std::deque<Forecast> forecasts_;      // of the micro-batches in flight and this step
};

}  // namespace wideep::engine
