// SPDX-License-Identifier: Apache-2.0
//
// A job starts when the owner writes it to the Part of each worker and increments that Part's
// `begun`. It ends when every worker has set its `done` to the same number. In between, threads
// take chunks:
//   - jobs without ranges: from one shared counter;
//   - jobs with ranges: first from the thread's own range, then from the longest range left.
// run() returns only after every worker is done. So no worker sees ranges or counters of the next
// job, and relaxed order suffices for them: `begun` (release) publishes what the owner wrote
// before, and `done` (release) publishes the results of the body.
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "base/check.h"
#include "base/cpu_time.h"
#include "base/spin_pause.h"

namespace wideep::base {
namespace {

// How long a thread spins before it sleeps: longer than the serial steps between two jobs of a
// forward pass, and short enough not to disturb other programs.
constexpr int64_t kSpinNs = 100'000;

// A thread takes 1 / kShare of what is left of a range. Large chunks are few: the compare-and-swap
// of a take also orders memory, so the thread's loads do not overlap across it.
constexpr int64_t kShare = 2;
// With `spin`, other threads may take only the last 1 / kSharedPart of a range: somewhat more than
// the times of threads differ from one job to the next.
constexpr int64_t kSharedPart = 8;
// Speeds are learned from jobs with at least kUnitsToLearn units per thread, where the rounding to
// units matters little, and in small steps, because a thread that was interrupted once is not slow.
constexpr int64_t kUnitsToLearn = 8;
constexpr double kStep = 0.125;
// A thread's share stays between an equal share divided by this and an equal share times this.
constexpr double kMaxUnequal = 2.0;

// Ignores errors: on a processor that may not be used the thread is slower, not wrong.
void bind_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processor), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

}  // namespace

ThreadPool::ThreadPool(ThreadPoolOptions options)
    : options_(std::move(options)), parts_(static_cast<size_t>(std::max(options_.num_threads, 1))) {
  WIDEEP_CHECK_GE(options_.num_threads, 1);
  for (int i = 0; i <= options_.num_threads; ++i) {
    range_begins_.push_back(static_cast<double>(i) / options_.num_threads);
  }
  WIDEEP_CHECK(options_.processors.empty() ||
               options_.processors.size() == static_cast<size_t>(options_.num_threads));
  for (int i = 1; i < options_.num_threads; ++i) {
    try {
      workers_.emplace_back([this, i] { worker_loop(i); });
    } catch (const std::system_error& error) {
      // The destructor does not run for an object whose constructor throws.
      end_workers();
      throw std::system_error(
          error.code(), fmt::format("thread {} of {} cannot be started", i, options_.num_threads));
    }
  }
  // Last, so that a constructor that throws leaves the affinity of the calling thread as it was.
  if (!options_.processors.empty()) bind_to(options_.processors[0]);
}

ThreadPool::~ThreadPool() { end_workers(); }

void ThreadPool::end_workers() {
  publish_to_workers({});
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Job& job) {
  if (job.count <= 0) return;
  if (!job.has_ranges) next_.store(0, std::memory_order_relaxed);
  const bool alone = workers_.empty() || job.count <= job.grain;
  if (alone) return run_chunks(job, 0);
  publish_to_workers(job);
  const int64_t begin_ns = work_clock_ns();
  run_chunks(job, 0);
  const int64_t end_ns = work_clock_ns(), own_ns = end_ns - begin_ns;
  int64_t longest_ns = own_ns;
  for (size_t i = 1; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const uint32_t number = part.begun.load(std::memory_order_relaxed);
    // Acquire pairs with the store in worker_loop(): the worker's results are visible after it.
    while (part.done.load(std::memory_order_acquire) != number) {
      wait_while_equal(part.done, number - 1);
    }
    longest_ns = std::max(longest_ns, part.used_ns);
  }
  // The owner's spinning counts as its processor time but not as work. After kSpinNs it sleeps,
  // which takes no processor time.
  if (options_.spin) lag_cpu_ns_ -= std::min(work_clock_ns() - end_ns, kSpinNs);
  lag_cpu_ns_ += longest_ns - own_ns;
}

// The stores of `begun` and `done` are sequentially consistent, not only releases: notify_one()
// skips the system call when it sees no waiter. Without a total order a waiter could miss the new
// number while the notifier misses the waiter, and would sleep for ever.
void ThreadPool::publish_to_workers(const Job& job) {
  for (size_t i = 1; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    part.job = job;
    part.begun.store(part.begun.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    part.begun.notify_one();
  }
}

// A thread with its own core uses as much processor time as time passes, and the wall clock is
// cheaper to read: it needs no system call.
int64_t ThreadPool::work_clock_ns() const { return options_.spin ? wall_ns() : thread_cpu_ns(); }

void ThreadPool::set_ranges(int64_t count, int64_t unit, std::span<const int64_t> starts) {
  WIDEEP_CHECK(count < int64_t{1} << 32);
  WIDEEP_CHECK(starts.empty() || starts.size() == parts_.size());
  const size_t threads = parts_.size();
  // Rounded to the nearest unit, so that of two units each of two threads gets one, even if their
  // speeds differ.
  const auto place_of = [&](double share) {
    const double units = share * static_cast<double>(count) / static_cast<double>(unit);
    return std::min<int64_t>(count, std::llround(units) * unit);
  };
  int64_t begin = 0;
  for (size_t i = 0; i < threads; ++i) {
    int64_t end = count;
    if (i + 1 < threads) end = starts.empty() ? place_of(range_begins_[i + 1]) : starts[i + 1];
    const int64_t shared = (end - begin + kSharedPart - 1) / kSharedPart;
    // With `spin` the thread's first chunk needs no compare-and-swap: it is taken here in advance.
    const int64_t own = options_.spin ? (end - begin - shared) / unit * unit : 0;
    parts_[i].start = static_cast<uint32_t>(begin);
    parts_[i].range.set({begin + own, end});
    begin = end;
  }
}

// A thread that processed more items than its range had is faster than its share assumed: its share
// grows by kStep of the excess. All shares are then scaled to a sum of 1.
void ThreadPool::learn_speeds(int64_t count, int64_t unit) {
  const size_t threads = parts_.size();
  if (!options_.spin || count < kUnitsToLearn * unit * static_cast<int64_t>(threads)) return;
  const double equal = 1.0 / static_cast<double>(threads);
  double before = 0.0, all = 0.0;  // sums of the old and of the new shares of threads 0 to i − 1
  for (size_t i = 0; i < threads; ++i) {
    const int64_t end = i + 1 < threads ? parts_[i + 1].start : count;
    const double had = static_cast<double>(std::max<int64_t>(end - parts_[i].start, 1));
    double share = range_begins_[i + 1] - before;
    before = range_begins_[i + 1];
    share *= 1.0 + kStep * (static_cast<double>(parts_[i].taken) / had - 1.0);
    all += std::clamp(share, equal / kMaxUnequal, equal * kMaxUnequal);
    range_begins_[i + 1] = all;
  }
  for (double& share : range_begins_) share /= all;
}

int64_t ThreadPool::take(const Job& job, int thread, int64_t* end) {
  if (job.has_ranges) return take_of_range(job, thread, end);
  const int64_t begin = next_.fetch_add(job.grain, std::memory_order_relaxed);
  if (begin >= job.count) return job.count;
  *end = std::min(begin + job.grain, job.count);
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
    // Rounded up to a unit, so that what stays before it ends at a whole unit.
    const int64_t middle = std::max(items.begin, (items.end - size + unit - 1) / unit * unit);
    if (replace(items, {items.begin, middle})) return {middle, items.end};
  }
  return {};
}

// Takes from the thread's own range, and when that is empty from the longest range left.
int64_t ThreadPool::take_of_range(const Job& job, int thread, int64_t* end) {
  Items taken = parts_[static_cast<size_t>(thread)].range.take_first(job.grain);
  const auto longest = [&]() -> Range& {
    return std::max_element(parts_.begin(), parts_.end(),
                            [](const Part& a, const Part& b) {
                              return a.range.left().size() < b.range.left().size();
                            })
        ->range;
  };
  // With `spin` the last unit of a range is left to its thread, which is running: moving its data
  // to another core would take longer.
  const int64_t left_alone = options_.spin ? job.grain : 0;
  // take_last() comes back empty if other threads were faster: then look again.
  while (taken.size() == 0) {
    Range& range = longest();
    if (range.left().size() <= left_alone) return job.count;
    taken = range.take_last(job.grain);
  }
  *end = taken.end;
  return taken.begin;
}

void ThreadPool::run_chunks(const Job& job, int thread) {
  Part& part = parts_[static_cast<size_t>(thread)];
  int64_t begin = 0, end = 0;
  if (job.has_ranges) {
    // The part that set_ranges() reserved for this thread. Others only move the end of `range`.
    begin = part.start;
    end = part.range.left().begin;
    if (begin < end) job.call(job.body, begin, end);
  }
  int64_t taken = end - begin;
  while ((begin = take(job, thread, &end)) < job.count) {
    job.call(job.body, begin, end);
    taken += end - begin;
  }
  if (job.has_ranges) part.taken = static_cast<uint32_t>(taken);
}

void ThreadPool::wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old) const {
  if (options_.spin) {
    const int64_t until = wall_ns() + kSpinNs;
    do {
      // Reading the clock costs as much as many loads, so do it once in 64.
      for (int i = 0; i < 64; ++i) {
        if (value.load(std::memory_order_acquire) != old) return;
        spin_pause();
      }
    } while (wall_ns() < until);
  }
  value.wait(old, std::memory_order_acquire);
}

void ThreadPool::worker_loop(int index) {
  if (!options_.processors.empty()) bind_to(options_.processors[static_cast<size_t>(index)]);
  Part& part = parts_[static_cast<size_t>(index)];
  for (uint32_t number = 1;; ++number) {
    wait_while_equal(part.begun, number - 1);  // acquires what the owner wrote before
    const Job job = part.job;
    if (job.call == nullptr) return;
    const int64_t begin_ns = work_clock_ns();
    run_chunks(job, index);
    part.used_ns = work_clock_ns() - begin_ns;
    part.done.store(number, std::memory_order_seq_cst);  // order: see publish_to_workers()
    part.done.notify_one();
  }
}

}  // namespace wideep::base
