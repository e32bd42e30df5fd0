// SPDX-License-Identifier: Apache-2.0
#include "engine/speculation/speculation.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace wideep::engine {
namespace {

std::unique_ptr<Drafter> make_drafter(const SpeculationOptions& options, int most_running) {
  WIDEEP_CHECK(options.is_on());
  if (options.make_drafter) return options.make_drafter();
  if (options.method == SpeculationOptions::Method::kSuffix) {
    return suffix_drafter(options.max_pool_bytes);
  }
  NgramOptions ngram = options.ngram;
  ngram.max_draft_len = options.max_draft_len;
  ngram.max_bytes = options.max_pool_bytes;
  return ngram_drafter(ngram, options.is_public_pool, most_running);
}

}  // namespace

Speculation::Speculation(const SpeculationOptions& options, int most_running)
    : options_(options), drafter_(make_drafter(options, most_running)) {}

void Speculation::begin_step(int batch_size) {
  length_ = options_.max_draft_len;
  const auto larger = options_.draft_len_schedule.upper_bound(batch_size);
  if (larger != options_.draft_len_schedule.begin()) length_ = std::prev(larger)->second;
  if (options_.max_concurrency && batch_size > *options_.max_concurrency) length_ = 0;
  if (gave_up_) length_ = 0;
}

// The step after the drafts yields one token more than it accepts, of those that the request still
// may generate.
int Speculation::most_drafts(const Sequence& sequence, std::span<const int32_t> more) const {
  const int generated = sequence.num_generated() + static_cast<int>(more.size());
  return std::min(length_, sequence.request.max_tokens - generated - 1);
}

std::vector<int32_t> Speculation::draft(const Sequence& sequence, std::span<const int32_t> more) {
  if (!sequence.request.speculates) return {};
  Known& known = requests_[sequence.request.index];
  const std::span<const int32_t> unseen = std::span(sequence.tokens).subspan(known.seen);
  std::vector<int32_t> added(unseen.begin(), unseen.end());
  added.insert(added.end(), more.begin(), more.end());
  known.seen = sequence.tokens.size() + more.size();
  return drafter_->draft(sequence.request.index, added, most_drafts(sequence, more)).tokens;
}

void Speculation::note(int request, int tokens) {
  const auto known = requests_.find(request);
  if (known == requests_.end()) return;
  ++known->second.steps;
  known->second.tokens += tokens;
}

void Speculation::end(int request) {
  const auto known = requests_.find(request);
  if (known == requests_.end()) return;
  if (options_.acceptance_window && known->second.steps > 0) {
    acceptance_lengths_.push_back(static_cast<double>(known->second.tokens) /
                                  static_cast<double>(known->second.steps));
    const auto window = static_cast<size_t>(*options_.acceptance_window);
    if (acceptance_lengths_.size() > window) acceptance_lengths_.pop_front();
    const double sum = std::accumulate(acceptance_lengths_.begin(), acceptance_lengths_.end(), 0.0);
    gave_up_ |= acceptance_lengths_.size() == window &&
                sum < options_.acceptance_length_threshold * static_cast<double>(window);
  }
  requests_.erase(known);
  drafter_->end(request);
}

}  // namespace wideep::engine
