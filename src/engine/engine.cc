// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <algorithm>

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

}  // namespace

Engine::Engine(const model::ModelConfig& config, const model::KvLayout& kv,
               const SchedulerLimits& limits, model::Model& model, model::MoeRunner& moe,
               model::Compute compute, transport::Endpoint& endpoint, OnlineHooks online,
               EngineObserver observer)
    : config_(config),
      kv_(kv),
      scheduler_(kv, limits),
      model_(model),
      compute_(compute),
      endpoint_(endpoint),
      online_(std::move(online)),
      observer_(std::move(observer)) {
  moe.set_observer([this](const model::MoeLayerRecord& layer) { record_layer(layer); });
}

Status Engine::run() {
  for (;;) {
    if (observer_.on_start) observer_.on_start(iteration_);
    Scheduler::Step& step = scheduler_.schedule();
    WIDEEP_TRY_ASSIGN(const Next next, agree(step));
    if (next == Next::kEnd) return {};
    WIDEEP_TRY(run_step(step));
    ++iteration_;
  }
}

// Every rank sees the same words, so every rank decides the same.
Result<Engine::Next> Engine::agree(Scheduler::Step& step) {
  const base::TraceSpan span(base::Span::kAgree);
  transport::AgreedWords mine = {};
  mine[kFlagsWord] = scheduler_.has_work() ? kHasWork : 0;
  if (endpoint_.memory().control().stop_requested.load() != 0) mine[kFlagsWord] |= kStopRequested;
  mine[kTokensWord] = static_cast<uint64_t>(model_.group().tokens(step.batch.num_tokens()).size);
  if (online_.rank != nullptr) online_.rank->tell(mine);
  WIDEEP_TRY(endpoint_.agree(
      mine, {.what = "the start of the iteration", .layer = -1, .iteration = iteration_}, &words_));
  if (online_.rank != nullptr) online_.rank->apply(words_, iteration_, online_.switch_layer);
  uint64_t any = 0;
  for (const transport::AgreedWords& each : words_) {
    any |= each[kFlagsWord];
    step.batch.tokens_of_ranks.push_back(static_cast<int32_t>(each[kTokensWord]));
  }
  return (any & kHasWork) == 0 || (any & kStopRequested) != 0 ? Next::kEnd : Next::kContinue;
}

Status Engine::run_step(const Scheduler::Step& step) {
  const base::TraceSpan span(base::Span::kIteration);
  const int64_t start_ns = base::wall_ns();
  record_ = {.iteration = iteration_};
  last_mark_cpu_ns_ = busy_cpu_ns();
  current_ = &step;
  moe_layers_done_ = 0;
  if (speaks()) {
    record_.prompt_tokens = step.prompt_tokens;
    record_.generated_tokens = static_cast<int64_t>(step.sampled.size());
  }
  WIDEEP_TRY(model_.forward(step.batch, kv_, iteration_, &logits_));
  if (online_.rank != nullptr) online_.rank->end_iteration(iteration_);
  WIDEEP_TRY(sample_rows(step));
  record_.tail_cpu_ns = busy_cpu_ns() - last_mark_cpu_ns_;
  record_.wall_ns = base::wall_ns() - start_ns;
  return observer_.on_iteration ? observer_.on_iteration(record_) : Status();
}

void Engine::record_layer(const model::MoeLayerRecord& layer) {
  const int64_t now = busy_cpu_ns();
  LayerRecord record;
  record.experts_cpu_ns = layer.experts_cpu_ns;
  record.other_cpu_ns = now - last_mark_cpu_ns_ - layer.experts_cpu_ns;
  record.sent.assign(layer.sent_entries.begin(), layer.sent_entries.end());
  record.counts.assign(layer.counts.begin(), layer.counts.end());
  record_.layers.push_back(std::move(record));
  if (online_.rank != nullptr) online_.rank->add_counts(moe_layers_done_++, layer.group_counts);
  if (observer_.on_routing) {
    const ep::TokenRange own = model_.group().tokens(static_cast<int>(current_->owners.size()));
    observer_.on_routing({layer.layer, iteration_, layer.experts, layer.counts,
                          std::span(current_->owners).subspan(own.begin, own.size)});
  }
  last_mark_cpu_ns_ = busy_cpu_ns();  // telling is not part of the next layer
}

// Drawing is pure, and passes over all logits: on all threads. What follows is told in order.
Status Engine::sample_rows(const Scheduler::Step& step) {
  const base::TraceSpan span(base::Span::kSampling);
  const size_t vocab = config_.vocab_size;
  const auto logits_of = [&](size_t row) {
    return std::span<const float>(logits_.data() + row * vocab, vocab);
  };
  sampled_.resize(step.sampled.size());
  compute_.pool().parallel_for(
      static_cast<int64_t>(sampled_.size()), 1, [&](int64_t begin, int64_t end) {
        for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row) {
          const Sequence& sequence = *step.sampled[row];
          sampled_[row] = sample(logits_of(row), sequence.request.sampling, sequence.request.index,
                                 sequence.num_generated());
        }
      });
  for (size_t row = 0; row < step.sampled.size(); ++row) {
    Sequence& sequence = *step.sampled[row];
    const Sampled& sampled = sampled_[row];
    const FinishReason reason = append(sequence, sampled.token);
    const int index = sequence.request.index;
    if (reason != FinishReason::kNotFinished) scheduler_.finish(&sequence);
    if (observer_.on_token && speaks()) {
      WIDEEP_TRY(observer_.on_token({index, sampled, reason, logits_of(row)}));
    }
  }
  return {};
}

FinishReason Engine::append(Sequence& sequence, int32_t token) const {
  sequence.tokens.push_back(token);
  const auto& ends = config_.eos_token_ids;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) return FinishReason::kStop;
  return sequence.num_generated() == sequence.request.max_tokens ? FinishReason::kLength
                                                                 : FinishReason::kNotFinished;
}

// Processor time on this rank's critical path, waits left out.
int64_t Engine::busy_cpu_ns() const {
  return base::thread_cpu_ns() - endpoint_.waited_cpu_ns() + compute_.pool().lag_cpu_ns();
}

}  // namespace wideep::engine
