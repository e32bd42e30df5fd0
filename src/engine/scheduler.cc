// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace wideep::engine {
namespace {

int pages_needed(const Request& request) {
  // The last generated token is never fed back, but reserving for it keeps the rule simple.
  return pages_for(static_cast<int>(request.prompt.size()) + request.max_tokens);
}

}  // namespace

Scheduler::Scheduler(const model::KvLayout& kv, const SchedulerLimits& limits)
    : limits_(limits), pool_(kv.page_bytes(), limits.max_pages) {
  WIDEEP_CHECK_GE(limits.max_num_tokens, limits.max_batch_size);
  if (limits_.prefill_chunk <= 0) limits_.prefill_chunk = limits_.max_num_tokens;
}

Status Scheduler::submit(Request request) {
  const int pages = pages_needed(request);
  if (pages > limits_.max_pages) {
    return invalid_input(fmt::format(
        "request {}: {} prompt tokens and {} to generate need {} pages of the KV cache, found {}; "
        "shorten it or raise kv_cache_config.max_tokens",
        request.index, request.prompt.size(), request.max_tokens, pages, limits_.max_pages));
  }
  waiting_.push_back(std::move(request));
  return {};
}

void Scheduler::admit() {
  while (!waiting_.empty() && static_cast<int>(running_.size()) < limits_.max_batch_size) {
    const int pages = pages_needed(waiting_.front());
    if (reserved_pages_ + pages > limits_.max_pages) return;  // in order: none overtakes
    reserved_pages_ += pages;
    Sequence sequence{.request = std::move(waiting_.front())};
    waiting_.pop_front();
    sequence.tokens = sequence.request.prompt;
    running_.push_back(std::move(sequence));
  }
}

Scheduler::Step& Scheduler::schedule() {
  admit();
  step_.batch.clear();
  step_.sampled.clear();
  step_.owners.clear();
  step_.prompt_tokens = 0;
  for (Sequence& sequence : running_) {
    if (!sequence.in_prefill()) add_tokens(sequence, 1);
  }
  for (Sequence& sequence : running_) {
    if (!sequence.in_prefill()) continue;
    const int left = limits_.max_num_tokens - step_.batch.num_tokens();
    const int chunk =
        std::min({left, limits_.prefill_chunk, sequence.prompt_length() - sequence.num_computed});
    if (chunk <= 0) break;
    step_.prompt_tokens += chunk;
    add_tokens(sequence, chunk);
  }
  return step_;
}

void Scheduler::add_tokens(Sequence& sequence, int count) {
  model::Batch& batch = step_.batch;
  const int end = sequence.num_computed + count;
  while (static_cast<int>(sequence.pages.size()) < pages_for(end)) {
    sequence.pages.push_back(pool_.take());
  }
  for (int position = sequence.num_computed; position < end; ++position) {
    batch.ids.push_back(sequence.tokens[position]);
    batch.positions.push_back(position);
    batch.prompt_lengths.push_back(sequence.prompt_length());
    batch.pages.push_back(&sequence.pages);
    step_.owners.push_back(&sequence);
  }
  sequence.num_computed = end;
  if (end == static_cast<int>(sequence.tokens.size())) {
    batch.logit_rows.push_back(batch.num_tokens() - 1);
    step_.sampled.push_back(&sequence);
  }
}

void Scheduler::finish(Sequence* sequence) {
  reserved_pages_ -= pages_needed(sequence->request);
  pool_.give_back(sequence->pages);
  running_.remove_if([&](const Sequence& running) { return &running == sequence; });
}

}  // namespace wideep::engine
