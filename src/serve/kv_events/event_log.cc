// SPDX-License-Identifier: Apache-2.0
//
// Batches and pages are shared, not copied, so that the lock is held for pointers only; but for
// restate(), which whoever has fallen behind calls.
#include "kv_events/event_log.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace wideep::kv_events {
namespace {

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

EventLog::EventLog(int num_ranks, const LogLimits& limits)
    : limits_(limits), ranks_(static_cast<size_t>(num_ranks)) {}

void EventLog::begin(int64_t unix_us) {
  origin_ = static_cast<uint64_t>(unix_us);
  last_ = origin_;
  for (size_t i = 0; i < ranks_.size(); ++i) clear(static_cast<int>(i));
}

void EventLog::take(int rank, bool is_cleared, std::span<const engine::PageChange> changes) {
  const std::lock_guard lock(mutex_);
  WIDEEP_CHECK_LT(static_cast<size_t>(rank), ranks_.size());
  PageIndex& index = ranks_[static_cast<size_t>(rank)];
  std::vector<Event> events;
  // Not for nothing: there are readers that take it as said of all ranks (docs/kv_events.md).
  if (is_cleared && index.size() > 0) {
    index.clear();
    events.push_back({.kind = Event::kCleared});
  }
  std::ranges::move(index.take(changes), std::back_inserter(events));
  if (!events.empty()) add(rank, std::move(events));
}

void EventLog::clear(int rank) {
  const std::lock_guard lock(mutex_);
  WIDEEP_CHECK_LT(static_cast<size_t>(rank), ranks_.size());
  ranks_[static_cast<size_t>(rank)].clear();
  add(rank, {{.kind = Event::kCleared}});
}

SharedBatch EventLog::add(int rank, std::vector<Event> events) {
  auto batch = std::make_shared<const Batch>(
      Batch{.sequence = ++last_, .seconds = unix_now(), .rank = rank, .events = std::move(events)});
  batches_.push_back(batch);
  num_pages_ += batch->num_pages();
  while (batches_.size() > limits_.batches || num_pages_ > limits_.pages) {
    num_pages_ -= batches_.front()->num_pages();
    batches_.pop_front();
  }
  added_.notify_all();
  return batch;
}

uint64_t EventLog::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::optional<std::vector<SharedBatch>> EventLog::after(uint64_t sequence, size_t max_pages) const {
  const std::lock_guard lock(mutex_);
  const uint64_t behind = last_ - sequence;
  if (sequence > last_ || behind > batches_.size()) return std::nullopt;
  std::vector<SharedBatch> batches;
  size_t num_pages = 0;
  for (size_t i = batches_.size() - behind; i < batches_.size(); ++i) {
    num_pages += batches_[i]->num_pages();
    if (!batches.empty() && num_pages > max_pages) break;
    batches.push_back(batches_[i]);
  }
  return batches;
}

std::vector<SharedBatch> EventLog::since(uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const auto first = std::ranges::lower_bound(
      batches_, sequence, {}, [](const SharedBatch& each) { return each->sequence; });
  return {first, batches_.end()};
}

void EventLog::wait(uint64_t sequence, std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  added_.wait_for(lock, limit, [&] { return last_ > sequence; });
}

EventLog::Snapshot EventLog::snapshot(size_t max_pages) const {
  Snapshot snapshot;
  {
    const std::lock_guard lock(mutex_);
    snapshot.sequence = last_;
    for (const PageIndex& each : ranks_) snapshot.ranks.push_back(each.pages());
  }
  for (std::vector<SharedPage>& each : snapshot.ranks) {
    const size_t all = each.size();
    sort_parents_first(&each, max_pages / snapshot.ranks.size());
    snapshot.is_complete &= each.size() == all;
  }
  return snapshot;
}

std::vector<SharedBatch> EventLog::restate() {
  const std::lock_guard lock(mutex_);
  std::vector<SharedBatch> batches;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    batches.push_back(add(static_cast<int>(i), {{.kind = Event::kCleared}}));
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int rank = static_cast<int>(i);
    std::vector<SharedPage> pages = ranks_[i].pages();
    sort_parents_first(&pages);
    for (size_t first = 0; first < pages.size(); first += limits_.restated_pages) {
      const size_t count = std::min(limits_.restated_pages, pages.size() - first);
      batches.push_back(add(rank, stored_events(std::span(pages).subspan(first, count))));
    }
  }
  return batches;
}

}  // namespace wideep::kv_events
