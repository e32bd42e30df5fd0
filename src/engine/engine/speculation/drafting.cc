// SPDX-License-Identifier: Apache-2.0
//
// A forecast is made when drafts are, and told with the step that verifies them: as many steps later
// as micro-batches are in flight. So the queue of forecasts begins with one for each of these.
#include "engine/speculation/drafting.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/trace.h"
#include "base/try.h"
#include "model/parts/resident_experts.h"

namespace wideep::engine {
namespace {

bool ends(std::span<const Verdict> verdicts) {
  return verdicts.back().reason != FinishReason::kNotFinished;
}

}  // namespace

Drafting::Drafting(const EngineParts& parts, Speculation* speculation, IterationRecorder& recorder)
    : parts_(parts), speculation_(speculation), counted_(counts()) {
  if (speculation_ == nullptr) return;
  forecasts_.resize(static_cast<size_t>(parts.pipeline.micro_batches()));
  if (parts.speculation.predicts()) {
    mtp_.emplace(parts.model, parts.kv, recorder, parts.config.num_prediction_layers,
                 parts.limits.max_batch_size);
  }
  // With context parallelism ranks that draft alike see different experts.
  if (parts.model.context().is_alone()) recorder.set_speculation(speculation_);
}

void Drafting::begin_step(const Scheduler::Step& step) {
  passes_ = {};
  max_drafts_ = 0;
  if (!mtp_) return;
  passes_.rows = mtp_->rows_for(step);
  max_drafts_ = speculation_->length_for(static_cast<int>(step.sampled.size()));
  passes_.length = max_drafts_;
}

void Drafting::say(RankState* state) const {
  state->pass_rows = parts_.model.group().tokens(passes_.rows).size;
  state->max_drafts = passes_.length;
  state->last_step_us = last_.us;
  state->last_step_had_prompts = last_.had_prompts;
}

void Drafting::hear(std::span<const RankState> ranks) {
  observe(std::exchange(last_, {}), ranks);
  if (!mtp_) return;
  const auto begin = static_cast<size_t>(parts_.dispatch_ranks.begin);
  const auto size = static_cast<size_t>(parts_.dispatch_ranks.size);
  for (const RankState& state : ranks.subspan(begin, size)) {
    passes_.rows_of_ranks.push_back(state.pass_rows);
    // A rank that drafts more than this one decides the length of the chain.
    passes_.length = std::max(passes_.length, state.max_drafts);
  }
}

// What the last step has cost is measured by one rank of those that compute the same requests, so
// that all of them draft alike.
void Drafting::observe(const Cost& last, std::span<const RankState> ranks) {
  if (speculation_ == nullptr || !speculation_->is_adaptive() || last.tokens == 0) return;
  // Prompts, also of other ranks, for which this one has waited, would hide what drafts cost.
  if (std::ranges::any_of(ranks, &RankState::last_step_had_prompts)) return;
  const int own = parts_.stage.rank() - parts_.dispatch_ranks.begin;
  const int measuring = parts_.model.group().is_alone() ? own : 0;
  const uint64_t us = ranks[static_cast<size_t>(measuring)].last_step_us;
  speculation_->observe(last.tokens, static_cast<double>(us) * 1e-6, last.misses);
}

residency::ResidencyCounts Drafting::counts() const {
  residency::ResidencyCounts sum;
  if (parts_.resident == nullptr) return sum;
  for (const residency::ResidencyCounts& layer : parts_.resident->counts()) sum += layer;
  return sum;
}

// Since the last call. Only of this rank's experts, though a step waits for those of all ranks:
// which ones stay is decided alike everywhere. Ranks that must draft alike have all of them in
// memory.
double Drafting::take_misses() {
  if (parts_.resident == nullptr || speculation_ == nullptr || !speculation_->is_adaptive()) {
    return 0.0;
  }
  const residency::ResidencyCounts now = counts(), before = std::exchange(counted_, now);
  const int64_t misses = (now.chosen - now.hits) - (before.chosen - before.hits);
  return static_cast<double>(misses) / static_cast<double>(parts_.resident->layers().size());
}

Status Drafting::draft(const Scheduler::Step& step, std::span<const std::vector<Verdict>> verdicts,
                       int64_t iteration, std::vector<Yield>* yields) {
  WIDEEP_TRY(predict(step, verdicts, iteration, *yields));
  verified_.clear();
  if (speculation_ == nullptr) return {};
  const base::TraceSpan span(base::Span::kDrafting);
  std::vector<Speculation::Continuation> continuations;
  for (size_t i = 0; i < step.sampled.size(); ++i) {
    const Sequence& sequence = *step.sampled[i];
    const auto count = static_cast<int>((*yields)[i].tokens.size());
    if (sequence.num_verifying > 0) {
      verified_.push_back({sequence.request.index, sequence.num_verifying, count - 1});
    }
    continuations.push_back({.sequence = &sequence,
                             .tokens = (*yields)[i].known(),
                             .ends = ends(verdicts[i]),
                             .predicted = mtp_ ? std::span<const int32_t>(mtp_->drafts()[i])
                                               : std::span<const int32_t>()});
  }
  std::vector<std::vector<int32_t>> drafts = speculation_->draft(continuations);
  for (size_t i = 0; i < drafts.size(); ++i) (*yields)[i].drafts = std::move(drafts[i]);
  forecasts_.push_back(speculation_->forecast());
  return {};
}

// Drafts of the model's prediction layers. All ranks of the stage run them, also without tokens.
Status Drafting::predict(const Scheduler::Step& step,
                         std::span<const std::vector<Verdict>> verdicts, int64_t iteration,
                         std::span<const Yield> yields) {
  if (!mtp_) return {};
  const base::TraceSpan span(base::Span::kPredicting);
  std::vector<MtpDrafter::Yielded> yielded;
  for (size_t i = 0; i < step.sampled.size(); ++i) {
    const auto count = static_cast<int>(yields[i].tokens.size());
    const int drafts = ends(verdicts[i]) ? 0 : Speculation::max_drafts(*step.sampled[i], count);
    yielded.push_back({.tokens = yields[i].known(), .drafts = std::min(max_drafts_, drafts)});
  }
  return mtp_->draft(step, yielded, passes_, iteration);
}

void Drafting::end_step(const Scheduler::Step& step, int64_t ns, IterationRecord* record) {
  last_ = {.tokens = step.num_tokens,
           .us = static_cast<uint64_t>(
               std::clamp<int64_t>(ns / 1000, 1, std::numeric_limits<int32_t>::max())),
           .had_prompts = step.prompt_tokens > 0,
           .misses = take_misses()};
  if (record != nullptr) record->verified = std::move(verified_);
  if (speculation_ == nullptr) return;
  if (record != nullptr) {
    record->forecast = forecasts_.front();
    record->draft_bytes = static_cast<int64_t>(speculation_->bytes());
    record->gave_up_drafts = speculation_->has_given_up();
  }
  forecasts_.pop_front();
}

void Drafting::end(int request) {
  if (speculation_ != nullptr) speculation_->end(request);
  if (mtp_) mtp_->end(request);
}

}  // namespace wideep::engine
