// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>

#include "base/check.h"
#include "base/cpu_time.h"

namespace wideep::base {
namespace {

// Longer than the serial steps of a forward pass, shorter than anyone would notice.
constexpr int64_t kSpinNs = 100'000;

// What a thread takes of a range: one part in so many of what is left.
constexpr int64_t kShare = 3;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Best effort: a processor that may not be used is no reason to fail.
void bind_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processor), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

}  // namespace

ThreadPool::ThreadPool(ThreadPoolOptions options)
    : options_(std::move(options)),
      ranges_(static_cast<size_t>(std::max(options_.num_threads, 1))) {
  WIDEEP_CHECK_GE(options_.num_threads, 1);
  WIDEEP_CHECK(options_.processors.empty() ||
               options_.processors.size() == static_cast<size_t>(options_.num_threads));
  for (int i = 1; i < options_.num_threads; ++i) {
    workers_.emplace_back([this, i] { worker_loop(i); });
  }
  if (!options_.processors.empty()) bind_to(options_.processors[0]);
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t count, int64_t grain, void* body, Call call) {
  if (count <= 0) return;
  body_ = body;
  call_ = call;
  count_ = count;
  grain_ = std::max<int64_t>(grain, 1);
  next_.store(0, std::memory_order_relaxed);
  longest_ns_.store(0, std::memory_order_relaxed);
  const bool alone = workers_.empty() || count <= grain_;
  if (!alone) {
    active_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
  }
  const int64_t own_ns = run_chunks(0);
  if (!alone) {
    const int64_t waits_from = options_.spin ? wall_ns() : 0;
    for (uint32_t left; (left = active_.load(std::memory_order_acquire)) != 0;) {
      wait_while_equal(active_, left);
    }
    if (options_.spin) lag_cpu_ns_ -= std::min(wall_ns() - waits_from, kSpinNs);
  }
  lag_cpu_ns_ += longest_ns_.load(std::memory_order_relaxed) - own_ns;
}

// With a core to itself a thread's processor time is the time that passes, which is cheaper to ask.
int64_t ThreadPool::work_clock_ns() const { return options_.spin ? wall_ns() : thread_cpu_ns(); }

void ThreadPool::set_ranges(int64_t count, int64_t unit, std::span<const int64_t> starts) {
  WIDEEP_CHECK(count < int64_t{1} << 32);
  WIDEEP_CHECK(starts.empty() || starts.size() == ranges_.size());
  const auto threads = static_cast<int64_t>(ranges_.size());
  int64_t begin = 0;
  for (int64_t i = 0; i < threads; ++i) {
    int64_t end = count;
    if (i + 1 < threads) {
      end = starts.empty() ? count * (i + 1) / threads / unit * unit
                           : starts[static_cast<size_t>(i + 1)];
    }
    ranges_[static_cast<size_t>(i)].set({begin, end});
    begin = end;
  }
}

int64_t ThreadPool::take(int thread, int64_t* end) {
  if (has_ranges_) return take_of_range(thread, end);
  const int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
  if (begin >= count_) return count_;
  *end = std::min(begin + grain_, count_);
  return begin;
}

ThreadPool::Items ThreadPool::Range::take_first(int64_t unit) {
  for (Items items = left(); items.size() > 0; items = left()) {
    const int64_t size = std::max(items.size() / kShare, unit) / unit * unit;
    const int64_t middle = std::min(items.begin + size, items.end);
    if (replace(items, {middle, items.end})) return {items.begin, middle};
  }
  return {};
}

ThreadPool::Items ThreadPool::Range::take_last(int64_t unit) {
  for (Items items = left(); items.size() > 0; items = left()) {
    const int64_t size = std::max(items.size() / kShare, unit);
    const int64_t middle = std::max(items.begin, (items.end - size + unit - 1) / unit * unit);
    if (replace(items, {items.begin, middle})) return {middle, items.end};
  }
  return {};
}

// Of the thread's own range, then of the longest that is left.
int64_t ThreadPool::take_of_range(int thread, int64_t* end) {
  Items taken = ranges_[static_cast<size_t>(thread)].take_first(grain_);
  const auto longest = [&] {
    return std::max_element(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
      return a.left().size() < b.left().size();
    });
  };
  for (auto from = longest(); taken.size() == 0 && from->left().size() > 0; from = longest()) {
    taken = from->take_last(grain_);
  }
  if (taken.size() == 0) return count_;
  *end = taken.end;
  return taken.begin;
}

int64_t ThreadPool::run_chunks(int thread) {
  const int64_t start_ns = work_clock_ns();
  int64_t end = 0;
  for (int64_t begin; (begin = take(thread, &end)) < count_;) call_(body_, begin, end);
  const int64_t used_ns = work_clock_ns() - start_ns;
  int64_t longest = longest_ns_.load(std::memory_order_relaxed);
  while (used_ns > longest && !longest_ns_.compare_exchange_weak(longest, used_ns)) {
  }
  return used_ns;
}

void ThreadPool::wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old) const {
  if (options_.spin) {
    const int64_t until = wall_ns() + kSpinNs;
    do {
      for (int i = 0; i < 64; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        pause_briefly();
      }
    } while (wall_ns() < until);
  }
  value.wait(old, std::memory_order_acquire);
}

void ThreadPool::worker_loop(int index) {
  if (!options_.processors.empty()) bind_to(options_.processors[static_cast<size_t>(index)]);
  for (uint32_t seen = 0;; ++seen) {
    wait_while_equal(generation_, seen);
    if (stop_) return;
    run_chunks(index);
    if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) active_.notify_one();
  }
}

}  // namespace wideep::base
