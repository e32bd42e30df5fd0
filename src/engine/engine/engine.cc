// SPDX-License-Identifier: Apache-2.0
//
// Every rank runs Engine::run(). Before each iteration the ranks of a stage exchange one message of
// 64-bit words (agree). Each of them then evaluates the same words with the same code, so all take
// the same decision without a leader: go on or end, how many commands to apply next, whether new
// prompts may begin.
#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/trace.h"
#include "base/try.h"
#include "engine/constraints.h"
#include "group/fault_drill.h"

namespace wideep::engine {
EngineState::EngineState(const EngineParts& parts, bool speculates)
    : scheduler(parts.kv, parts.limits, parts.context_place, parts.states.bytes()) {
  if (!speculates || !parts.speculation.is_on()) return;
  speculation.emplace(parts.speculation, parts.limits.max_batch_size * parts.limits.micro_batches,
                      parts.config.routing.num_experts, parts.config.routing.top_k);
}

std::vector<int> EngineState::give_up_step() {
  if (!std::exchange(has_step, false)) return {};
  std::vector<int> ended = scheduler.give_up_step();
  for (const int request : ended) {
    if (speculation) speculation->end(request);
  }
  return ended;
}

void EngineState::drop_requests() {
  give_up_step();
  for (const int request : scheduler.drop_requests()) {
    if (speculation) speculation->end(request);
  }
  kept_prompts.drop();
}

Engine::Engine(EngineParts parts, EngineState& state)
    : parts_(std::move(parts)),
      state_(state),
      scheduler_(state.scheduler),
      gate_(parts_.limits.balance),
      verifier_(parts_.compute.kernels(), parts_.config.eos_token_ids, parts_.speculation.relaxed,
                reports_tokens(), parts_.constraints),
      recorder_(parts_.model, parts_.compute, parts_.stage, parts_.dispatch_ranks,
                parts_.config.num_layers, parts_.online, parts_.reporter),
      drafting_(parts_, state.speculation ? &*state.speculation : nullptr, recorder_),
      in_flight_(static_cast<size_t>(parts_.pipeline.micro_batches())) {
  parts_.moe.set_observer(&recorder_);
}

Result<Engine::Ended> Engine::run() {
  Next next = Next::kContinue;
  while (next == Next::kContinue) {
    parts_.reporter.begin_iteration(state_.iteration);
    // The order matters. All stages complete micro-batch n − m before they schedule n, so that
    // their schedulers stay equal. The received header says how many commands to apply.
    if (num_begun_ - num_completed_ == in_flight_.size()) WIDEEP_TRY(complete_oldest());
    WIDEEP_TRY(receive_rows());
    WIDEEP_TRY(apply_commands());
    WIDEEP_TRY_ASSIGN(Scheduler::Step * step, schedule());
    WIDEEP_TRY_ASSIGN(next, agree(*step));
    if (next == Next::kLeave) break;
    WIDEEP_TRY(next == Next::kContinue ? run_step(*step) : send_end());
    state_.has_step = false;
    ++num_begun_;
  }
  // So no stage ends before the last stage has computed what is in flight.
  while (num_completed_ < num_begun_) WIDEEP_TRY(complete_oldest());
  clock_.ended_ns = base::wall_ns();
  return next == Next::kLeave ? Ended::kMembersChange : Ended::kFinished;
}

RunTimes Engine::times() const {
  if (state_.first_request_ns == 0) return {};
  const int64_t end = clock_.ended_ns > 0 ? clock_.ended_ns : base::wall_ns();
  return {end - state_.first_request_ns, parts_.pipeline.waited_ns() - clock_.waited_before_ns};
}

// ---- what to compute ----

// The previous stage has scheduled the same micro-batch.
Status Engine::receive_rows() {
  if (parts_.pipeline.is_first()) return {};
  WIDEEP_TRY_ASSIGN(received_, parts_.pipeline.receive(state_.iteration));
  return {};
}

// Applies the commands that all ranks have agreed on. A rank that schedules alone may apply later
// ones too, because no other rank has to schedule the same requests.
Status Engine::apply_commands() {
  using std::chrono::milliseconds;
  RequestFeed& feed = parts_.feed;
  if (parts_.pipeline.is_first()) {
    // A rank sleeps only if it has applied every command that it has received. Otherwise another
    // rank may have received the same command, be awake already, and wait for this rank in agree().
    // A quarter of the timeout leaves time for the agreement before a peer's deadline passes.
    const bool sleeps = all_idle_ && feed.seen() == feed.taken();
    const milliseconds patience = sleeps ? parts_.stage.timeout() / 4 : milliseconds(0);
    WIDEEP_TRY(feed.wait(parts_.stage, patience));
  } else {
    num_agreed_ = received_.num_commands;
    WIDEEP_TRY(feed.wait_for(num_agreed_, parts_.stage));
  }
  clock_.begin_ns = base::wall_ns();
  while (feed.has_next(num_agreed_, schedules_alone())) WIDEEP_TRY(apply(feed.take()));
  return {};
}

bool Engine::schedules_alone() const {
  return parts_.pipeline.is_first() && parts_.pipeline.is_last() &&
         parts_.model.group().is_alone() && parts_.model.context().is_alone();
}

Status Engine::apply(Command command) {
  using Kind = Command::Kind;
  switch (command.kind) {
    case Kind::kSubmit:
      if (state_.first_request_ns == 0) {
        state_.first_request_ns = base::wall_ns();
        clock_.waited_before_ns = parts_.pipeline.waited_ns();
      }
      if (!parts_.feed.is_mine(command)) return {};
      if (parts_.constraints != nullptr && parts_.pipeline.is_last() &&
          command.request.grammar != nullptr) {
        parts_.constraints->expect(*command.request.grammar);
      }
      return scheduler_.submit(std::move(command.request));
    case Kind::kCancel:
      return scheduler_.cancel(command.request.index) ? note_end(command.request.index) : Status();
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
      return parts_.reporter.record_experts(command.kind == Kind::kRecordExperts,
                                            command.request.index);
    case Kind::kRole:
      scheduler_.prefer(command.role);
      if (parts_.store != nullptr) parts_.store->prefer(command.role);
      return parts_.reporter.prefers(command.role, command.request.index);
    case Kind::kOffers:
      if (parts_.store != nullptr) parts_.store->offer_to(std::move(command.request.peer));
      return {};
    case Kind::kFinish:
      state_.finishing = true;
      return {};
    case Kind::kLook:
    case Kind::kFetch:
    case Kind::kAbandon:
    case Kind::kImport:
      if (parts_.feed.is_mine(command)) state_.kept_prompts.apply(command, parts_.store);
      return {};
    case Kind::kMembers:  // for the feed alone
      return {};
    case Kind::kStop:  // only raises the flag: the ranks end together, by their next agreement
      parts_.stage.memory().control().stop_requested = 1;
      return {};
  }
  return {};
}

Result<Scheduler::Step*> Engine::schedule() {
  const int64_t start_ns = base::wall_ns();
  Scheduler::Step& step = scheduler_.schedule();
  state_.has_step = true;
  const bool tells = parts_.tells_pages && reports_tokens();
  WIDEEP_TRY(state_.kept_prompts.pass_on_news(parts_.store, tells ? &parts_.reporter : nullptr));
  state_.kept_prompts.make_way(parts_.store);
  clock_.schedule_ns += base::wall_ns() - start_ns;
  return &step;
}

// ---- what all ranks agree on ----

// Exchanges the words of this iteration with all ranks of the stage and returns whether the run
// goes on. It also fills step.batch.tokens_of_ranks, which gives every MoE layer its chunks.
Result<Engine::Next> Engine::agree(Scheduler::Step& step) {
  const int own_tokens = parts_.model.group().tokens(step.batch.num_tokens()).size;
  // Stages schedule independently. A difference here would pair rows with the wrong tokens.
  if (!parts_.pipeline.is_first()) {
    WIDEEP_CHECK_EQ(received_.num_tokens, received_.ends ? 0 : own_tokens);
  }
  if (received_.ends) return Next::kEnd;
  const base::TraceSpan span(base::Span::kAgree);
  const int64_t before_ns = base::thread_cpu_ns() - parts_.stage.waited_cpu_ns();
  transport::AgreedWords mine = {};
  drafting_.begin_step(step);
  pack(rank_state(own_tokens), mine);
  if (parts_.online != nullptr) parts_.online->write_states(mine);
  WIDEEP_TRY(parts_.stage.agree(
      mine, {.what = "the start of the iteration", .layer = -1, .iteration = state_.iteration},
      &words_));
  transport::FaultDrill::pass(transport::FaultDrill::Step::kAgreed);
  if (parts_.online != nullptr) parts_.online->apply(words_, state_.iteration);
  ranks_.clear();
  for (const transport::AgreedWords& words : words_) ranks_.push_back(unpack_rank_state(words));
  for (int i = 0; i < parts_.dispatch_ranks.size; ++i) {
    const RankState& each = ranks_[static_cast<size_t>(parts_.dispatch_ranks.begin + i)];
    step.batch.tokens_of_ranks.push_back(each.num_tokens);
  }
  drafting_.hear(ranks_);
  update_prompt_gate();
  clock_.agree_cpu_ns += base::thread_cpu_ns() - parts_.stage.waited_cpu_ns() - before_ns;
  return decide();
}

RankState Engine::rank_state(int own_tokens) const {
  const transport::ControlPage& control = parts_.stage.memory().control();
  RankState state = {.has_work = scheduler_.has_work(),
                     .stop_requested = control.stop_requested.load() != 0,
                     .change_requested = control.change_requested.load() != 0,
                     .readiness = scheduler_.readiness(),
                     .num_seen = parts_.feed.seen(),
                     .num_tokens = own_tokens};
  drafting_.say(&state);
  return state;
}

// Opens or closes the gate for new prompts. All stages get the same result: their ranks schedule
// the same requests, so they send the same readiness.
void Engine::update_prompt_gate() {
  std::vector<RankReadiness> readiness;
  for (const RankState& rank : ranks_) readiness.push_back(rank.readiness);
  scheduler_.hold_new_prompts(!gate_.open(readiness));
}

// Sets how many commands may be applied in the next iteration, and returns whether the run goes on.
// Only the first stage decides. Later stages get both from the header of the received rows.
Result<Engine::Next> Engine::decide() {
  RankState any{.num_seen = UINT64_MAX};  // what any rank says, and the least that all have seen
  for (const RankState& each : ranks_) {
    any.has_work |= each.has_work;
    any.stop_requested |= each.stop_requested;
    any.change_requested |= each.change_requested;
    any.num_seen = std::min(any.num_seen, each.num_seen);
  }
  const bool first = parts_.pipeline.is_first();
  if (first) num_agreed_ = any.num_seen;
  // A command that is agreed on but not applied may be a request: that is work too.
  all_idle_ = !any.has_work && num_agreed_ == parts_.feed.taken();
  if (all_idle_ && std::exchange(released_, false)) WIDEEP_TRY(parts_.reporter.idle());
  const bool ends = any.stop_requested || (state_.finishing && all_idle_);
  if (first && ends) return Next::kEnd;
  return any.change_requested ? Next::kLeave : Next::kContinue;
}

// ---- the step ----

// The end travels through the pipeline as a micro-batch without tokens, behind all earlier ones.
Status Engine::send_end() {
  received_ = {};
  next_in_flight() = {.iteration = state_.iteration};
  parts_.pipeline.send(0, true, parts_.feed.taken());
  if (parts_.pipeline.is_last()) parts_.pipeline.send_tokens({});
  return {};
}

// Computes the step if any rank has tokens: the forward pass is collective, so a rank without
// tokens takes part as well. If no rank has tokens (no work, or in a pipeline all requests wait for
// tokens in flight), only an empty micro-batch is sent, which keeps the stages in step.
Status Engine::run_step(const Scheduler::Step& step) {
  MicroBatch& micro_batch = next_in_flight();
  micro_batch.iteration = state_.iteration;
  micro_batch.sequences.assign(step.sampled.begin(), step.sampled.end());
  micro_batch.yields.clear();
  const bool any =
      std::ranges::any_of(ranks_, [](const RankState& rank) { return rank.num_tokens > 0; });
  if (any) {
    WIDEEP_TRY(compute(step, &micro_batch.yields));
    ++state_.iteration;
    return {};
  }
  parts_.pipeline.send(0, false, parts_.feed.taken());
  if (parts_.pipeline.is_last()) parts_.pipeline.send_tokens({});
  return {};
}

Status Engine::compute(const Scheduler::Step& step, std::vector<Yield>* yields) {
  const base::TraceSpan span(base::Span::kIteration);
  if (!step.reporting.empty()) WIDEEP_TRY(report_begun_prompts(step));
  recorder_.begin(state_.iteration, step.owners, step.batch.positions);
  const model::StageRows rows{
      .in = received_.rows,
      .out = parts_.pipeline.is_last() ? nullptr : parts_.pipeline.next_rows()};
  WIDEEP_TRY(parts_.model.forward(step.batch, parts_.kv, state_.iteration, rows, &logits_));
  if (parts_.has_absent_experts) spoil_sequences(step);
  // Before everything else: the next stage is waiting.
  parts_.pipeline.send(parts_.model.group().tokens(step.batch.num_tokens()).size, false,
                       parts_.feed.taken());
  if (!step.reporting.empty()) WIDEEP_TRY(report_prompts(step));
  if (parts_.pipeline.is_last()) {
    WIDEEP_TRY(gather_logits(step));
    WIDEEP_TRY(sample_rows(step, yields));
  }
  if (parts_.online != nullptr) {
    parts_.online->end_iteration(state_.iteration, recorder_.experts_rows(),
                                 recorder_.experts_cpu_ns());
  }
  IterationRecord& record = recorder_.end();
  record.begin_ns = clock_.begin_ns;
  state_.kept_prompts.measure(step.prompt_tokens, step.num_tokens,
                              static_cast<double>(record.end_ns - record.begin_ns) * 1e-9);
  record.schedule_ns = std::exchange(clock_.schedule_ns, 0);
  record.agree_cpu_ns = std::exchange(clock_.agree_cpu_ns, 0);
  // Only one rank of a group and pipeline counts tokens, so that sums over ranks are right.
  if (reports_tokens()) {
    record.prompt_tokens = step.prompt_tokens;
    for (const std::vector<Verdict>& verdicts : verdicts_) {
      const bool has_failed = has_no_token(verdicts.back().reason);
      record.generated_tokens += static_cast<int64_t>(verdicts.size()) - (has_failed ? 1 : 0);
    }
    record.queue = scheduler_.record();
  }
  drafting_.end_step(step, record.end_ns - record.begin_ns, reports_tokens() ? &record : nullptr);
  return parts_.reporter.end_iteration(std::move(record));
}

// Whose rows are no numbers has chosen an expert that could not be read, on whichever rank.
void Engine::spoil_sequences(const Scheduler::Step& step) {
  bool any = false;
  for (size_t token = 0; token < step.owners.size(); ++token) {
    if (parts_.model.is_number(static_cast<int>(token))) continue;
    step.owners[token]->is_spoiled = true;
    any = true;
  }
  if (any) scheduler_.forget_step();
}

// All-gather over the ranks that share sequences. Each rank has computed the logit rows of its own
// tokens; afterwards all of them can read all rows, until the next iteration. Each then samples
// every sequence itself, so that no sampled token has to be sent within the group.
Status Engine::gather_logits(const Scheduler::Step& step) {
  all_logits_ = logits_.data();
  model::TensorGroup& context = parts_.model.context();
  if (context.is_alone()) return {};
  const auto vocab = static_cast<size_t>(parts_.config.vocab_size);
  float* all = context.joint<float>(model::JointBuffer::kLogits,
                                    static_cast<size_t>(step.first_row.back()) * vocab);
  std::vector<transport::Written> written;
  for (size_t row = 0; row < step.logit_places.size(); ++row) {
    float* place = all + static_cast<size_t>(step.logit_places[row]) * vocab;
    std::copy_n(logits_.data() + row * vocab, vocab, place);
    written.push_back({.first = place, .width = vocab * sizeof(float)});
  }
  all_logits_ = all;
  return context.meet(written, {.what = "the logits of all ranks", .iteration = state_.iteration});
}

std::span<const float> Engine::logits_of(int row) const {
  const size_t vocab = parts_.config.vocab_size;
  return {all_logits_ + static_cast<size_t>(row) * vocab, vocab};
}

// Sampling reads all logits of a row and has no side effects, so all threads take part. Reports are
// made afterwards on this thread, because the reporter expects them in order.
Status Engine::sample_rows(const Scheduler::Step& step, std::vector<Yield>* yields) {
  const base::TraceSpan span(base::Span::kSampling);
  if (parts_.constraints != nullptr) parts_.constraints->begin_step();
  verdicts_.resize(step.sampled.size());
  parts_.compute.pool().parallel_for(
      static_cast<int64_t>(verdicts_.size()), 1, [&](int64_t begin, int64_t end) {
        for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
          const int first_row = step.first_row[i];
          verdicts_[i] = verifier_.verify(*step.sampled[i],
                                          [&](int after) { return logits_of(first_row + after); });
        }
      });
  yields->resize(step.sampled.size());
  for (size_t i = 0; i < verdicts_.size(); ++i) {
    for (const Verdict& each : verdicts_[i]) (*yields)[i].tokens.push_back(each.sampled.token);
  }
  WIDEEP_TRY(drafting_.draft(step, verdicts_, state_.iteration, yields));
  send_yields(*yields);  // before the reports: earlier stages wait for them
  return reports_tokens() ? report(step) : Status();
}

Status Engine::report(const Scheduler::Step& step) {
  for (size_t i = 0; i < step.sampled.size(); ++i) {
    const Sequence& sequence = *step.sampled[i];
    int row = step.first_row[i];
    int drafts = sequence.num_verifying;
    for (const Verdict& verdict : verdicts_[i]) {
      WIDEEP_TRY(parts_.reporter.token({.request_index = sequence.request.index,
                                        .sampled = verdict.sampled,
                                        .finish_reason = verdict.reason,
                                        .logits = logits_of(row++),
                                        .likely = verdict.likely,
                                        .cached_tokens = sequence.cached_tokens,
                                        .step_drafts = std::exchange(drafts, -1)}));
    }
  }
  return {};
}

namespace {

PromptProgress progress_of(const Sequence& sequence, int computed) {
  const int total = sequence.prompt_length();
  return {.request_index = sequence.request.index,
          .processed = std::min(computed, total),
          .total = total,
          .cached = std::min(sequence.cached_tokens, total)};
}

}  // namespace

// Before the forward pass, so that who waits for it learns when it has begun.
Status Engine::report_begun_prompts(const Scheduler::Step& step) {
  if (!reports_tokens()) return {};
  for (Sequence* sequence : step.reporting) {
    if (std::exchange(sequence->has_begun, true)) continue;
    PromptProgress progress = progress_of(*sequence, sequence->before_step->num_computed);
    progress.is_first = true;
    WIDEEP_TRY(parts_.reporter.prompt(progress));
  }
  return {};
}

Status Engine::report_prompts(const Scheduler::Step& step) {
  if (!reports_tokens()) return {};
  for (const Sequence* sequence : step.reporting) {
    WIDEEP_TRY(parts_.reporter.prompt(progress_of(*sequence, sequence->num_computed)));
  }
  return {};
}

void Engine::send_yields(std::span<const Yield> yields) {
  pack(yields, &words_sent_);
  parts_.pipeline.send_tokens(words_sent_);
}

Status Engine::note_end(int request) {
  drafting_.end(request);
  return parts_.reporter.ended(request);
}

// Appends the tokens of the oldest micro-batch in flight to their sequences, and frees those that
// end. Stages before the last receive the tokens first.
Status Engine::complete_oldest() {
  MicroBatch& oldest = in_flight_[num_completed_ % in_flight_.size()];
  if (!parts_.pipeline.is_last()) {
    WIDEEP_TRY_ASSIGN(const auto words, parts_.pipeline.receive_tokens(oldest.iteration));
    oldest.yields = unpack_yields(words);
  }
  WIDEEP_CHECK_EQ(oldest.yields.size(), oldest.sequences.size());
  const int64_t start_ns = base::wall_ns();
  for (size_t i = 0; i < oldest.yields.size(); ++i) {
    Sequence& sequence = *oldest.sequences[i];
    Yield& yield = oldest.yields[i];
    const FinishReason reason = verifier_.reason_to_finish(
        sequence, yield.tokens.back(), static_cast<int>(yield.tokens.size()) - 1);
    // No further token: any other stands for it until the sequence has ended.
    if (yield.tokens.back() == kNoToken) yield.tokens.back() = 0;
    scheduler_.append(sequence, yield.tokens, std::move(yield.drafts));
    if (reason == FinishReason::kNotFinished) continue;
    const int request = sequence.request.index;
    scheduler_.finish(&sequence);
    WIDEEP_TRY(note_end(request));
  }
  clock_.schedule_ns += base::wall_ns() - start_ns;
  ++num_completed_;
  return {};
}

}  // namespace wideep::engine
