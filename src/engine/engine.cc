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

// What a rank tells the others before each iteration, beside the news of online::tell.
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

void NodeTraffic::add(const NodeTraffic& other) {
  dispatched_rows += other.dispatched_rows;
  dispatched_bytes += other.dispatched_bytes;
  returned_rows += other.returned_rows;
  returned_bytes += other.returned_bytes;
  other_bytes += other.other_bytes;
}

Engine::Engine(const model::ModelConfig& config, const model::KvLayout& kv,
               const SchedulerLimits& limits, model::Model& model, model::MoeRunner& moe,
               model::Compute compute, transport::Endpoint& endpoint, ep::TokenRange dispatch_ranks,
               ContextPlace place, Pipeline& pipeline, OnlineHooks online, EngineObserver observer)
    : config_(config),
      kv_(kv),
      scheduler_(kv, limits, std::move(place)),
      model_(model),
      compute_(compute),
      endpoint_(endpoint),
      dispatch_ranks_(dispatch_ranks),
      pipeline_(pipeline),
      online_(std::move(online)),
      observer_(std::move(observer)),
      under_way_(static_cast<size_t>(pipeline.micro_batches())),
      gate_(limits.balance) {
  moe.set_observer(this);
}

Status Engine::run() {
  const int64_t start_ns = base::wall_ns();
  Status status = run_until_end();
  wall_ns_ += base::wall_ns() - start_ns;
  return status;
}

Status Engine::serve(RequestFeed& feed) {
  feed_ = &feed;
  return run();
}

Status Engine::run_until_end() {
  Next next = Next::kContinue;
  while (next == Next::kContinue) {
    if (observer_.on_start) observer_.on_start(iteration_);
    if (begun_ - taken_in_ == under_way_.size()) WIDEEP_TRY(take_in_tokens());
    WIDEEP_TRY(receive());
    if (feed_ != nullptr) WIDEEP_TRY(follow_feed());
    Scheduler::Step& step = schedule();
    WIDEEP_TRY_ASSIGN(next, agree(step));
    WIDEEP_TRY(next == Next::kContinue ? run_step(step) : pass_on_end());
    ++begun_;
  }
  while (taken_in_ < begun_) WIDEEP_TRY(take_in_tokens());
  return {};
}

// From the stage before, which has scheduled the same.
Status Engine::receive() {
  if (pipeline_.is_first()) return {};
  WIDEEP_TRY_ASSIGN(received_, pipeline_.receive(iteration_));
  return {};
}

// As far as the first stage has agreed to, or further where nobody follows this rank.
Status Engine::follow_feed() {
  using std::chrono::milliseconds;
  if (pipeline_.is_first()) {
    // Commands that this rank has seen and others have not must not be slept over: they wait for
    // it.
    const bool sleeps = all_idle_ && feed_->seen() == feed_->taken();
    const milliseconds patience = sleeps ? endpoint_.timeout() / 4 : milliseconds(0);
    WIDEEP_TRY(feed_->wait(endpoint_, patience));
  } else {
    num_agreed_ = received_.num_commands;
    WIDEEP_TRY(feed_->wait_for(num_agreed_, endpoint_));
  }
  while (feed_->has_next(num_agreed_, schedules_alone())) WIDEEP_TRY(follow(feed_->take()));
  return {};
}

bool Engine::schedules_alone() const {
  return pipeline_.is_first() && pipeline_.is_last() && model_.group().is_alone() &&
         model_.context().is_alone();
}

Status Engine::follow(Command command) {
  switch (command.kind) {
    case Command::Kind::kCancel:
      scheduler_.cancel(command.request.index);
      return {};
    case Command::Kind::kRecordExperts:
    case Command::Kind::kEndRecord:
      return observer_.on_record_experts
                 ? observer_.on_record_experts(command.kind == Command::Kind::kRecordExperts)
                 : Status();
    case Command::Kind::kStop:
      endpoint_.memory().control().stop_requested = 1;
      return {};
    case Command::Kind::kSubmit:
      break;
  }
  return feed_->is_mine(command) ? scheduler_.submit(std::move(command.request)) : Status();
}

Scheduler::Step& Engine::schedule() {
  const int64_t start_ns = base::wall_ns();
  Scheduler::Step& step = scheduler_.schedule();
  schedule_ns_ += base::wall_ns() - start_ns;
  return step;
}

// Every rank sees the same words, so every rank decides the same; of a pipeline, for all stages.
Result<Engine::Next> Engine::agree(Scheduler::Step& step) {
  const int own_tokens = model_.group().tokens(step.batch.num_tokens()).size;
  if (!pipeline_.is_first()) WIDEEP_CHECK_EQ(received_.num_tokens, received_.ends ? 0 : own_tokens);
  if (received_.ends) return Next::kEnd;
  const base::TraceSpan span(base::Span::kAgree);
  transport::AgreedWords mine = {};
  mine[kFlagsWord] = flags();
  mine[kTokensWord] = static_cast<uint64_t>(own_tokens);
  if (online_.rank != nullptr) online_.rank->tell(mine);
  WIDEEP_TRY(endpoint_.agree(
      mine, {.what = "the start of the iteration", .layer = -1, .iteration = iteration_}, &words_));
  if (online_.rank != nullptr) online_.rank->apply(words_, iteration_, online_.switch_layer);
  uint64_t any = 0, seen_by_all = UINT64_MAX;
  for (const transport::AgreedWords& each : words_) {
    any |= each[kFlagsWord];
    seen_by_all = std::min(seen_by_all, each[kFlagsWord] >> kSeenShift);
  }
  for (int i = 0; i < dispatch_ranks_.size; ++i) {
    const transport::AgreedWords& each = words_[static_cast<size_t>(dispatch_ranks_.begin + i)];
    step.batch.tokens_of_ranks.push_back(static_cast<int32_t>(each[kTokensWord]));
  }
  hold_prompts();
  if (!pipeline_.is_first()) return Next::kContinue;
  num_agreed_ = seen_by_all;
  all_idle_ = (any & kHasWork) == 0 && num_agreed_ == num_followed();
  const bool ends = (any & kStopRequested) != 0 || (feed_ == nullptr && (any & kHasWork) == 0);
  return ends ? Next::kEnd : Next::kContinue;
}

uint64_t Engine::flags() const {
  const RankReadiness readiness = scheduler_.readiness();
  uint64_t flags = scheduler_.has_work() ? kHasWork : 0;
  if (endpoint_.memory().control().stop_requested.load() != 0) flags |= kStopRequested;
  if (readiness.has_prompts) flags |= kHasPrompts;
  if (readiness.generates) flags |= kGenerates;
  if (readiness.has_room) flags |= kHasRoom;
  return feed_ == nullptr ? flags : flags | feed_->seen() << kSeenShift;
}

// From what all ranks have said; those of other stages say the same, for they schedule the same.
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

// The end is a micro-batch without tokens.
Status Engine::pass_on_end() {
  received_ = {};
  next_under_way() = {.iteration = iteration_};
  pipeline_.send(0, true, num_followed());
  if (pipeline_.is_last()) pipeline_.send_tokens({});
  return {};
}

// In a pipeline it may be that all requests wait for tokens under way: then nothing is computed.
Status Engine::run_step(const Scheduler::Step& step) {
  MicroBatch& micro_batch = next_under_way();
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
  pipeline_.send(0, false, num_followed());
  if (pipeline_.is_last()) pipeline_.send_tokens({});
  return {};
}

Status Engine::compute(const Scheduler::Step& step, std::vector<Sampled>* sampled) {
  const base::TraceSpan span(base::Span::kIteration);
  const int64_t start_ns = base::wall_ns();
  record_ = {.iteration = iteration_};
  last_mark_cpu_ns_ = busy_cpu_ns();
  current_ = &step;
  moe_layers_done_ = 0;
  if (speaks()) {
    record_.prompt_tokens = step.prompt_tokens;
    record_.generated_tokens = static_cast<int64_t>(step.sampled.size());
    record_.queue = scheduler_.record();
  }
  const model::StageRows rows{.in = received_.rows,
                              .out = pipeline_.is_last() ? nullptr : pipeline_.room()};
  WIDEEP_TRY(model_.forward(step.batch, kv_, iteration_, rows, &logits_));
  pipeline_.send(model_.group().tokens(step.batch.num_tokens()).size, false, num_followed());
  if (online_.rank != nullptr) online_.rank->end_iteration(iteration_);
  if (pipeline_.is_last()) {
    WIDEEP_TRY(share_logits(step));
    WIDEEP_TRY(sample_rows(step, sampled));
  }
  record_.tail_cpu_ns = busy_cpu_ns() - last_mark_cpu_ns_;
  record_.wall_ns = base::wall_ns() - start_ns;
  record_.schedule_ns = std::exchange(schedule_ns_, 0);
  return observer_.on_iteration ? observer_.on_iteration(record_) : Status();
}

void Engine::on_layer(const model::MoeLayerRecord& layer) {
  const int64_t now = busy_cpu_ns();
  LayerRecord record;
  record.experts_cpu_ns = layer.experts_cpu_ns;
  record.other_cpu_ns = now - last_mark_cpu_ns_ - layer.experts_cpu_ns;
  record.sent.resize(static_cast<size_t>(endpoint_.num_ranks()));
  std::copy(layer.sent_entries.begin(), layer.sent_entries.end(),
            record.sent.begin() + dispatch_ranks_.begin);
  record.counts.assign(layer.counts.begin(), layer.counts.end());
  record_.layers.push_back(std::move(record));
  if (online_.rank != nullptr) online_.rank->add_counts(moe_layers_done_++, layer.group_counts);
  if (observer_.on_routing) {
    const ep::TokenRange own = model_.group().tokens(static_cast<int>(current_->owners.size()));
    observer_.on_routing({layer.layer, iteration_, layer.experts, layer.counts, layer.group_counts,
                          std::span(current_->owners).subspan(own.begin, own.size)});
  }
  last_mark_cpu_ns_ = busy_cpu_ns();  // telling is not part of the next layer
}

// Each rank has the rows of its tokens; all have all of them after it, until the next iteration.
Status Engine::share_logits(const Scheduler::Step& step) {
  all_logits_ = logits_.data();
  model::TensorGroup& context = model_.context();
  if (context.is_alone()) return {};
  const auto vocab = static_cast<size_t>(config_.vocab_size);
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
  const size_t vocab = config_.vocab_size;
  const auto logits_of = [&](size_t row) {
    return std::span<const float>(all_logits_ + row * vocab, vocab);
  };
  sampled->resize(step.sampled.size());
  likely_.assign(speaks() ? step.sampled.size() : 0, {});
  compute_.pool().parallel_for(
      static_cast<int64_t>(sampled->size()), 1, [&](int64_t begin, int64_t end) {
        for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
          const Sequence& sequence = *step.sampled[row];
          (*sampled)[row] = sample(compute_.kernels(), logits_of(row), sequence.request.sampling,
                                   sequence.request.draw, sequence.num_generated());
          const int likely = sequence.request.sampling.top_log_probabilities;
          if (likely > 0 && !likely_.empty())
            likely_[row] = most_likely(compute_.kernels(), logits_of(row), likely);
        }
      });
  pipeline_.send_tokens(*sampled);
  if (!observer_.on_token || !speaks()) return {};
  for (size_t row = 0; row < step.sampled.size(); ++row) {
    const Sequence& sequence = *step.sampled[row];
    const FinishReason reason = reason_to_finish(sequence, (*sampled)[row].token);
    WIDEEP_TRY(observer_.on_token({sequence.request.index, (*sampled)[row], reason, logits_of(row),
                                   likely_[row], sequence.cached_tokens}));
  }
  return {};
}

// With `token` as its next.
FinishReason Engine::reason_to_finish(const Sequence& sequence, int32_t token) const {
  if (sequence.cancelled) return FinishReason::kStop;
  const auto& ends = config_.eos_token_ids;
  const bool ends_here = std::find(ends.begin(), ends.end(), token) != ends.end();
  if (ends_here && !sequence.request.ignore_eos) return FinishReason::kStop;
  return sequence.num_generated() + 1 == sequence.request.max_tokens ? FinishReason::kLength
                                                                     : FinishReason::kNotFinished;
}

// Of the oldest iteration under way: its requests go on, or end.
Status Engine::take_in_tokens() {
  MicroBatch& oldest = under_way_[taken_in_ % under_way_.size()];
  if (!pipeline_.is_last()) {
    WIDEEP_TRY_ASSIGN(const auto sampled, pipeline_.receive_tokens(oldest.iteration));
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

// Processor time on this rank's critical path, waits left out.
int64_t Engine::busy_cpu_ns() const {
  return base::thread_cpu_ns() - endpoint_.waited_cpu_ns() + compute_.pool().lag_cpu_ns();
}

}  // namespace wideep::engine
