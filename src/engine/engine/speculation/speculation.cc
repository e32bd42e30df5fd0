// SPDX-License-Identifier: Apache-2.0
//
// draft() asks the drafter for each sequence, while the next ones' places in its tables are loaded
// already (expect), and then, with adaptive lengths, cuts all drafts of the step together: what a
// token costs depends on how many the others have.
//
// Nothing is cut by a guess: before the first measured step nothing is verified. Afterwards a loop
// threatens: no drafts, hence no measurements with drafts, hence no drafts. probes() breaks it.
#include "engine/speculation/speculation.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/check.h"

namespace wideep::engine {
namespace {

constexpr int64_t kStepsPerSpread = 32;            // the loads of experts change slowly
constexpr int kFirstProbe = 8, kLastProbe = 1024;  // steps between probes
constexpr int64_t kStepsPerSize = 64;              // to add up all requests takes time
// How many requests before their turn Drafter::expect() is called. The first ones of a step are not
// expected: what few requests read stays in the processor's caches.
constexpr size_t kExpectedEarly = 8, kExpectedLate = 4;

std::unique_ptr<Drafter> make_drafter(const SpeculationOptions& options, int max_running) {
  WIDEEP_CHECK(options.is_on());
  if (options.make_drafter) return options.make_drafter();
  using Method = SpeculationOptions::Method;
  if (options.predicts() && !options.suffix_threshold) return nullptr;
  if (options.method == Method::kSuffix || options.predicts()) {
    return suffix_drafter(options.max_pool_bytes);
  }
  NgramOptions ngram = options.ngram;
  ngram.max_draft_len = options.max_draft_len;
  ngram.max_bytes = options.max_pool_bytes;
  return ngram_drafter(ngram, options.is_public_pool, max_running);
}

}  // namespace

Speculation::Speculation(const SpeculationOptions& options, int max_running, int num_experts,
                         int top_k)
    : options_(options),
      drafter_(make_drafter(options, max_running)),
      spread_(num_experts, top_k),
      step_time_(spread_, options.step_time),
      steps_to_probe_(kFirstProbe),
      probe_interval_(kFirstProbe) {}

int Speculation::max_drafts(const Sequence& sequence, int yielded) {
  if (!sequence.request.speculates) return 0;
  return std::max(0, sequence.request.max_tokens - sequence.num_generated() - yielded - 1);
}

int Speculation::length_for(int batch_size) const {
  if (gave_up_) return 0;
  if (batch_size > options_.max_concurrency.value_or(batch_size)) return 0;
  const auto larger = options_.draft_len_schedule.upper_bound(batch_size);
  return larger == options_.draft_len_schedule.begin() ? options_.max_draft_len
                                                       : std::prev(larger)->second;
}

std::vector<std::vector<int32_t>> Speculation::draft(std::span<const Continuation> step) {
  if (options_.acceptance_rate_window && !gave_up_) note_rate(step);
  if (gave_up_) return std::vector<std::vector<int32_t>>(step.size());
  if (num_drafted_++ % kStepsPerSize == 0 && drafter_) bytes_ = drafter_->bytes();
  const auto goes_on = [](const Continuation& one) { return !one.ends; };
  const int length = length_for(static_cast<int>(std::ranges::count_if(step, goes_on)));
  std::vector<Draft> drafts;
  drafts.reserve(step.size());
  for (size_t i = 0; i < step.size(); ++i) {
    expect(step, i + kExpectedEarly, false);
    expect(step, i + kExpectedLate, true);
    drafts.push_back(draft(step[i], length));
  }
  forecast_ = {};
  if (options_.is_adaptive) cut(step, drafts);
  std::vector<std::vector<int32_t>> tokens;
  for (Draft& draft : drafts) tokens.push_back(std::move(draft.tokens));
  return tokens;
}

void Speculation::expect(std::span<const Continuation> step, size_t index, bool late) const {
  if (index >= step.size() || !drafter_ || step[index].tokens.empty()) return;
  drafter_->expect(step[index].sequence->request.index, step[index].tokens.front(), late);
}

Draft Speculation::draft(const Continuation& one, int max) {
  const Sequence& sequence = *one.sequence;
  const Request& request = sequence.request;
  if (!request.speculates || one.tokens.empty()) return {};
  Known& known = requests_[request.index];
  if (sequence.num_verifying > 0) {
    ++known.verifying_steps;
    known.accepted += static_cast<int64_t>(one.tokens.size()) - 1;
  }
  // For a drafter: all of the text at first, then what the step has yielded.
  std::span<const int32_t> added = one.tokens;
  if (drafter_ != nullptr && known.seen < sequence.tokens.size()) {
    added_.assign(sequence.tokens.begin() + static_cast<std::ptrdiff_t>(known.seen),
                  sequence.tokens.end());
    added_.insert(added_.end(), one.tokens.begin(), one.tokens.end());
    added = added_;
  }
  known.seen = sequence.tokens.size() + one.tokens.size();
  const int left = one.ends ? 0 : max_drafts(sequence, static_cast<int>(one.tokens.size()));
  Draft draft = draft_after(one, added, std::min(max, left));
  if (options_.is_adaptive && (known.is_followed || !draft.tokens.empty())) {
    known.is_followed = acceptance_.follow(request.index, one.tokens, draft);
  }
  return draft;
}

// A long match is a better guess than the prediction layer's (TensorRT-LLM's sa_spec_threshold).
Draft Speculation::draft_after(const Continuation& one, std::span<const int32_t> added, int max) {
  Draft draft;
  if (drafter_) draft = drafter_->draft(one.sequence->request.index, added, max);
  if (!options_.predicts() || max <= 0) return draft;
  if (draft.match >= options_.suffix_threshold.value_or(0) && !draft.tokens.empty()) return draft;
  const auto count = std::min(one.predicted.size(), static_cast<size_t>(max));
  const std::span<const int32_t> predicted = one.predicted.first(count);
  return {.tokens = {predicted.begin(), predicted.end()}};
}

// ---- adaptive lengths ----

void Speculation::cut(std::span<const Continuation> step, std::vector<Draft>& drafts) {
  if (std::ranges::all_of(drafts, [](const Draft& each) { return each.tokens.empty(); })) return;
  if (!step_time_.has_observed()) {
    for (Draft& draft : drafts) draft.tokens.clear();
    return;
  }
  std::vector<std::vector<double>> chances;  // of the requests that go on
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i].ends) continue;
    std::vector<double>& of_request = chances.emplace_back();
    for (size_t at = 0; at < drafts[i].tokens.size(); ++at) {
      of_request.push_back(acceptance_.probability(step[i].sequence->request.index, drafts[i].match,
                                                   static_cast<int>(at)));
    }
  }
  const auto seconds = [&](int tokens) { return step_time_.predict(tokens); };
  DraftLengths chosen = choose_draft_lengths(chances, seconds);
  const DraftLengths likely = likely_draft_lengths(chances, seconds);
  if (probes(chosen, likely)) chosen = likely;
  size_t next = 0;
  for (size_t i = 0; i < step.size(); ++i) {
    if (!step[i].ends) drafts[i].tokens.resize(static_cast<size_t>(chosen.lengths[next++]));
  }
  forecast_ = {chosen.expected_tokens, chosen.expected_seconds};
}

// A few wrong times may make drafts look too dear, and without drafts nothing would correct them.
// So where many likely ones are given up, a step now and then verifies them all: it yields not much
// less than it costs even if each token costs the same. Less and less often, as long as nothing
// follows from it; at first two in a row, because the first one may allocate memory.
bool Speculation::probes(const DraftLengths& chosen, const DraftLengths& likely) {
  const auto sum = [](const std::vector<int>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), 0);
  };
  const auto requests = static_cast<int>(chosen.lengths.size());
  if (sum(likely.lengths) < requests || 4 * sum(chosen.lengths) >= sum(likely.lengths)) {
    steps_to_probe_ = probe_interval_ = kFirstProbe;
    return false;
  }
  const bool is_first = probe_interval_ == kFirstProbe;
  if (--steps_to_probe_ > (is_first ? 1 : 0)) return false;
  if (steps_to_probe_ == 0) {
    probe_interval_ = std::min(4 * probe_interval_, kLastProbe);
    steps_to_probe_ = probe_interval_;
  }
  return true;
}

void Speculation::observe(int tokens, double seconds, double misses) {
  step_time_.observe(tokens, seconds, misses);
  if (++num_observed_ % kStepsPerSpread == 0) spread_.update();
}

void Speculation::add_counts(int layer, std::span<const int32_t> counts) {
  spread_.add(layer, counts);
}

// ---- requests that end ----

void Speculation::end(int request) {
  const auto known = requests_.find(request);
  if (known == requests_.end()) return;
  const Known ended = known->second;
  requests_.erase(known);
  acceptance_.end(request);
  if (drafter_) drafter_->end(request);
  if (options_.acceptance_window && ended.verifying_steps > 0) {
    note_acceptance(static_cast<double>(ended.accepted) /
                    static_cast<double>(ended.verifying_steps));
  }
}

namespace {

// Adds the value; whether the last `window` values are below the threshold in the mean.
bool is_below(std::deque<double>& values, double value, int window, double threshold) {
  const auto size = static_cast<size_t>(window);
  values.push_back(value);
  if (values.size() > size) values.pop_front();
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.size() == size && sum < threshold * static_cast<double>(size);
}

}  // namespace

void Speculation::note_acceptance(double accepted) {
  if (is_below(accepted_, accepted, *options_.acceptance_window,
               options_.acceptance_length_threshold)) {
    give_up();
  }
}

// A step yields a token more than it accepts.
void Speculation::note_rate(std::span<const Continuation> step) {
  int64_t drafted = 0, accepted = 0;
  for (const Continuation& one : step) {
    if (one.sequence->num_verifying == 0 || one.tokens.empty()) continue;
    drafted += one.sequence->num_verifying;
    accepted += static_cast<int64_t>(one.tokens.size()) - 1;
  }
  if (drafted == 0) return;
  if (is_below(rates_, static_cast<double>(accepted) / static_cast<double>(drafted),
               *options_.acceptance_rate_window, options_.acceptance_rate_threshold)) {
    give_up();
  }
}

void Speculation::give_up() {
  gave_up_ = true;
  drafter_.reset();  // with its texts and pools
  requests_.clear();
  bytes_ = 0;
}

}  // namespace wideep::engine
