// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/trace.h"
#include "base/try.h"

namespace wideep::engine {
namespace {

// The words that ranks exchange before each iteration; others hold the states of online::add_state.
constexpr int kFlagsWord = 0;
constexpr int kTokensWord = 1;  // tokens of the rank's batch
static_assert(kTokensWord < online::kFirstDoneWord);
constexpr uint64_t kHasWork = 1;
constexpr uint64_t kStopRequested = 2;
// Of RankReadiness.
constexpr uint64_t kHasPrompts = 4;
constexpr uint64_t kGenerates = 8;
constexpr uint64_t kHasRoom = 16;
constexpr int kSeenShift = 5;  // above them: commands that the rank has seen

}  // namespace

Engine::Engine(EngineParts parts)
    : parts_(std::move(parts)),
      scheduler_(parts_.kv, parts_.limits, parts_.context_place),
      gate_(parts_.limits.balance),
      recorder_(parts_.model, parts_.compute, parts_.stage, parts_.dispatch_ranks, parts_.online,
                parts_.reporter),
      in_flight_(static_cast<size_t>(parts_.pipeline.micro_batches())) {
  parts_.moe.set_observer(&recorder_);
}

Status Engine::run() {
  Next next = Next::kContinue;
  while (next == Next::kContinue) {
    parts_.reporter.begin_iteration(iteration_);
    if (begun_ - taken_in_ == in_flight_.size()) WIDEEP_TRY(take_in_tokens());
    WIDEEP_TRY(receive());
    WIDEEP_TRY(follow_feed());
    Scheduler::Step& step = schedule();
    WIDEEP_TRY_ASSIGN(next, agree(step));
    WIDEEP_TRY(next == Next::kContinue ? run_step(step) : pass_on_end());
    ++begun_;
  }
  while (taken_in_ < begun_) WIDEEP_TRY(take_in_tokens());
  ended_ns_ = base::wall_ns();
  return {};
}

RunTimes Engine::times() const {
  if (first_request_ns_ == 0) return {};
  const int64_t end = ended_ns_ > 0 ? ended_ns_ : base::wall_ns();
  return {end - first_request_ns_, parts_.pipeline.waited_ns() - waited_before_ns_};
}

// ---- what to compute ----

// From the stage before, which has scheduled the same.
Status Engine::receive() {
  if (parts_.pipeline.is_first()) return {};
  WIDEEP_TRY_ASSIGN(received_, parts_.pipeline.receive(iteration_));
  return {};
}

// As far as the first stage has agreed to, or further where nobody follows this rank.
Status Engine::follow_feed() {
  using std::chrono::milliseconds;
  RequestFeed& feed = parts_.feed;
  if (parts_.pipeline.is_first()) {
    // Commands that this rank has seen and others have not must not be slept over: those others
    // wait for it.
    const bool sleeps = all_idle_ && feed.seen() == feed.taken();
    const milliseconds patience = sleeps ? parts_.stage.timeout() / 4 : milliseconds(0);
    WIDEEP_TRY(feed.wait(parts_.stage, patience));
  } else {
    num_agreed_ = received_.num_commands;
    WIDEEP_TRY(feed.wait_for(num_agreed_, parts_.stage));
  }
  begin_ns_ = base::wall_ns();
  while (feed.has_next(num_agreed_, schedules_alone())) WIDEEP_TRY(follow(feed.take()));
  return {};
}

bool Engine::schedules_alone() const {
  return parts_.pipeline.is_first() && parts_.pipeline.is_last() &&
         parts_.model.group().is_alone() && parts_.model.context().is_alone();
}

Status Engine::follow(Command command) {
  using Kind = Command::Kind;
  switch (command.kind) {
    case Kind::kSubmit:
      if (first_request_ns_ == 0) {
        first_request_ns_ = base::wall_ns();
        waited_before_ns_ = parts_.pipeline.waited_ns();
      }
      return parts_.feed.is_mine(command) ? scheduler_.submit(std::move(command.request))
                                          : Status();
    case Kind::kCancel:
      scheduler_.cancel(command.request.index);
      return {};
    case Kind::kHold:
    case Kind::kRelease:
      scheduler_.hold_requests(command.kind == Kind::kHold);
      released_ = command.kind == Kind::kRelease;
      return {};
    case Kind::kReportWhenIdle:
      parts_.reporter.report_when_idle();
      return {};
    case Kind::kRecordExperts:
    case Kind::kEndRecord:
      return parts_.reporter.record_experts(command.kind == Kind::kRecordExperts);
    case Kind::kFinish:
      finishing_ = true;
      return {};
    case Kind::kStop:
      parts_.stage.memory().control().stop_requested = 1;
      return {};
  }
  return {};
}

Scheduler::Step& Engine::schedule() {
  const int64_t start_ns = base::wall_ns();
  Scheduler::Step& step = scheduler_.schedule();
  schedule_ns_ += base::wall_ns() - start_ns;
  return step;
}

// ---- what all ranks agree on ----

// Every rank sees the same words, so every rank decides alike; of a pipeline, for all stages.
Result<Engine::Next> Engine::agree(Scheduler::Step& step) {
  const int own_tokens = parts_.model.group().tokens(step.batch.num_tokens()).size;
  if (!parts_.pipeline.is_first()) {
    WIDEEP_CHECK_EQ(received_.num_tokens, received_.ends ? 0 : own_tokens);
  }
  if (received_.ends) return Next::kEnd;
  const base::TraceSpan span(base::Span::kAgree);
  transport::AgreedWords mine = {};
  mine[kFlagsWord] = flags();
  mine[kTokensWord] = static_cast<uint64_t>(own_tokens);
  if (parts_.online != nullptr) parts_.online->write_states(mine);
  WIDEEP_TRY(parts_.stage.agree(
      mine, {.what = "the start of the iteration", .layer = -1, .iteration = iteration_}, &words_));
  if (parts_.online != nullptr) parts_.online->apply(words_, iteration_);
  for (int i = 0; i < parts_.dispatch_ranks.size; ++i) {
    const auto& each = words_[static_cast<size_t>(parts_.dispatch_ranks.begin + i)];
    step.batch.tokens_of_ranks.push_back(static_cast<int32_t>(each[kTokensWord]));
  }
  hold_prompts();
  return decide();
}

uint64_t Engine::flags() const {
  const RankReadiness readiness = scheduler_.readiness();
  uint64_t flags = scheduler_.has_work() ? kHasWork : 0;
  if (parts_.stage.memory().control().stop_requested.load() != 0) flags |= kStopRequested;
  if (readiness.has_prompts) flags |= kHasPrompts;
  if (readiness.generates) flags |= kGenerates;
  if (readiness.has_room) flags |= kHasRoom;
  return flags | parts_.feed.seen() << kSeenShift;
}

// From what all ranks have said; those of other stages say the same, for they schedule alike.
void Engine::hold_prompts() {
  std::vector<RankReadiness> ranks;
  for (const transport::AgreedWords& each : words_) {
    const uint64_t flags = each[kFlagsWord];
    ranks.push_back({.has_prompts = (flags & kHasPrompts) != 0,
                     .generates = (flags & kGenerates) != 0,
                     .has_room = (flags & kHasRoom) != 0});
  }
  scheduler_.hold_new_prompts(!gate_.open(ranks));
}

// How far commands may be followed in the next iteration, and whether the run goes on. Later stages
// know of no command that the first has not followed, and end when the first says so.
Result<Engine::Next> Engine::decide() {
  uint64_t any = 0, seen_by_all = UINT64_MAX;
  for (const transport::AgreedWords& each : words_) {
    any |= each[kFlagsWord];
    seen_by_all = std::min(seen_by_all, each[kFlagsWord] >> kSeenShift);
  }
  const bool first = parts_.pipeline.is_first();
  if (first) num_agreed_ = seen_by_all;
  all_idle_ = (any & kHasWork) == 0 && num_agreed_ == parts_.feed.taken();
  if (all_idle_ && std::exchange(released_, false)) WIDEEP_TRY(parts_.reporter.idle());
  const bool ends = (any & kStopRequested) != 0 || (finishing_ && all_idle_);
  return first && ends ? Next::kEnd : Next::kContinue;
}

// ---- the step ----

// The end is a micro-batch without tokens.
Status Engine::pass_on_end() {
  received_ = {};
  next_in_flight() = {.iteration = iteration_};
  parts_.pipeline.send(0, true, parts_.feed.taken());
  if (parts_.pipeline.is_last()) parts_.pipeline.send_tokens({});
  return {};
}

// In a pipeline it may be that all requests wait for tokens under way: then nothing is computed.
Status Engine::run_step(const Scheduler::Step& step) {
  MicroBatch& micro_batch = next_in_flight();
  micro_batch.iteration = iteration_;
  micro_batch.sequences.assign(step.sampled.begin(), step.sampled.end());
  micro_batch.sampled.clear();
  const bool any = std::any_of(words_.begin(), words_.end(),
                               [](const auto& words) { return words[kTokensWord] > 0; });
  if (any) {
    WIDEEP_TRY(compute(step, &micro_batch.sampled));
    ++iteration_;
    return {};
  }
  parts_.pipeline.send(0, false, parts_.feed.taken());
  if (parts_.pipeline.is_last()) parts_.pipeline.send_tokens({});
  return {};
}

Status Engine::compute(const Scheduler::Step& step, std::vector<Sampled>* sampled) {
  const base::TraceSpan span(base::Span::kIteration);
  recorder_.begin(iteration_, step.owners);
  const model::StageRows rows{.in = received_.rows,
                              .out = parts_.pipeline.is_last() ? nullptr : parts_.pipeline.room()};
  WIDEEP_TRY(parts_.model.forward(step.batch, parts_.kv, iteration_, rows, &logits_));
  parts_.pipeline.send(parts_.model.group().tokens(step.batch.num_tokens()).size, false,
                       parts_.feed.taken());
  if (parts_.online != nullptr) parts_.online->end_iteration(iteration_);
  if (parts_.pipeline.is_last()) {
    WIDEEP_TRY(share_logits(step));
    WIDEEP_TRY(sample_rows(step, sampled));
  }
  IterationRecord& record = recorder_.end();
  record.begin_ns = begin_ns_;
  record.schedule_ns = std::exchange(schedule_ns_, 0);
  if (speaks()) {
    record.prompt_tokens = step.prompt_tokens;
    record.generated_tokens = static_cast<int64_t>(step.sampled.size());
    record.queue = scheduler_.record();
  }
  return parts_.reporter.end_iteration(std::move(record));
}

// Each rank has the rows of its tokens; all have all of them after it, until the next iteration.
Status Engine::share_logits(const Scheduler::Step& step) {
  all_logits_ = logits_.data();
  model::TensorGroup& context = parts_.model.context();
  if (context.is_alone()) return {};
  const auto vocab = static_cast<size_t>(parts_.config.vocab_size);
  float* all = context.joint<float>(model::JointBuffer::kLogits, step.sampled.size() * vocab);
  std::vector<transport::Written> written;
  for (size_t row = 0; row < step.logit_places.size(); ++row) {
    float* place = all + static_cast<size_t>(step.logit_places[row]) * vocab;
    std::copy_n(logits_.data() + row * vocab, vocab, place);
    written.push_back({.first = place, .width = vocab * sizeof(float)});
  }
  all_logits_ = all;
  return context.meet(written, {.what = "the logits of all ranks", .iteration = iteration_});
}

// Drawing is pure, and passes over all logits: on all threads. What follows is told in order.
Status Engine::sample_rows(const Scheduler::Step& step, std::vector<Sampled>* sampled) {
  const base::TraceSpan span(base::Span::kSampling);
  const size_t vocab = parts_.config.vocab_size;
  const auto logits_of = [&](size_t row) {
    return std::span<const float>(all_logits_ + row * vocab, vocab);
  };
  sampled->resize(step.sampled.size());
  likely_.assign(speaks() ? step.sampled.size() : 0, {});
  parts_.compute.pool().parallel_for(
      static_cast<int64_t>(sampled->size()), 1, [&](int64_t begin, int64_t end) {
        for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
          const Sequence& sequence = *step.sampled[row];
          (*sampled)[row] =
              sample(parts_.compute.kernels(), logits_of(row), sequence.request.sampling,
                     sequence.request.draw, sequence.num_generated());
          const int likely = sequence.request.sampling.top_log_probabilities;
          if (likely > 0 && !likely_.empty())
            likely_[row] = most_likely(parts_.compute.kernels(), logits_of(row), likely);
        }
      });
  parts_.pipeline.send_tokens(*sampled);
  if (!speaks()) return {};
  for (size_t row = 0; row < step.sampled.size(); ++row) {
    const Sequence& sequence = *step.sampled[row];
    const FinishReason reason = reason_to_finish(sequence, (*sampled)[row].token);
    WIDEEP_TRY(parts_.reporter.token({sequence.request.index, (*sampled)[row], reason,
                                      logits_of(row), likely_[row], sequence.cached_tokens}));
  }
  return {};
}

// With `token` as its next.
FinishReason Engine::reason_to_finish(const Sequence& sequence, int32_t token) const {
  if (sequence.cancelled) return FinishReason::kStop;
  const auto& ends = parts_.config.eos_token_ids;
  const bool ends_here = std::find(ends.begin(), ends.end(), token) != ends.end();
  if (ends_here && !sequence.request.ignore_eos) return FinishReason::kStop;
  return sequence.num_generated() + 1 == sequence.request.max_tokens ? FinishReason::kLength
                                                                     : FinishReason::kNotFinished;
}

// Of the oldest iteration in flight: its requests go on, or end.
Status Engine::take_in_tokens() {
  MicroBatch& oldest = in_flight_[taken_in_ % in_flight_.size()];
  if (!parts_.pipeline.is_last()) {
    WIDEEP_TRY_ASSIGN(const auto sampled, parts_.pipeline.receive_tokens(oldest.iteration));
    oldest.sampled.assign(sampled.begin(), sampled.end());
  }
  WIDEEP_CHECK_EQ(oldest.sampled.size(), oldest.sequences.size());
  const int64_t start_ns = base::wall_ns();
  for (size_t i = 0; i < oldest.sampled.size(); ++i) {
    Sequence& sequence = *oldest.sequences[i];
    const int32_t token = oldest.sampled[i].token;
    const FinishReason reason = reason_to_finish(sequence, token);
    sequence.tokens.push_back(token);
    if (reason != FinishReason::kNotFinished) scheduler_.finish(&sequence);
  }
  schedule_ns_ += base::wall_ns() - start_ns;
  ++taken_in_;
  return {};
}

}  // namespace wideep::engine
