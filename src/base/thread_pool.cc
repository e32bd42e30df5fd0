// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "base/check.h"
#include "base/cpu_time.h"

namespace wideep::base {
namespace {

// Longer than the serial steps of a forward pass, shorter than anyone would notice.
constexpr int64_t kSpinNs = 100'000;

// What a thread takes of a range: one part in so many of what is left. Taking orders memory: what
// the thread has asked of memory comes first, and nothing behind is asked for meanwhile.
constexpr int64_t kShare = 2;
// Of a range of who has a core to itself, what others may take: as much as threads' times differ by
// from one job to the next, and some more.
constexpr int64_t kSharedPart = 8;  // one part in so many
// How fast threads are is learned from jobs with so many units for each, in small steps: whoever
// has been interrupted once is not slow.
constexpr int64_t kUnitsToLearn = 8;
constexpr double kStep = 0.125;
constexpr double kMostUnequal = 2.0;  // times an equal share, or a part of it

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
      end_workers();
      throw std::system_error(
          error.code(), fmt::format("thread {} of {} cannot be started", i, options_.num_threads));
    }
  }
  if (!options_.processors.empty()) bind_to(options_.processors[0]);
}

ThreadPool::~ThreadPool() { end_workers(); }

void ThreadPool::end_workers() {
  give_to_workers({});
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Job& job) {
  if (job.count <= 0) return;
  if (!job.has_ranges) next_.store(0, std::memory_order_relaxed);
  const bool alone = workers_.empty() || job.count <= job.grain;
  if (alone) return run_chunks(job, 0);
  give_to_workers(job);
  const int64_t begin_ns = work_clock_ns();
  run_chunks(job, 0);
  const int64_t end_ns = work_clock_ns(), own_ns = end_ns - begin_ns;
  int64_t longest_ns = own_ns;
  for (size_t i = 1; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const uint32_t number = part.begun.load(std::memory_order_relaxed);
    while (part.done.load(std::memory_order_acquire) != number) {
      wait_while_equal(part.done, number - 1);
    }
    longest_ns = std::max(longest_ns, part.used_ns);
  }
  if (options_.spin) lag_cpu_ns_ -= std::min(work_clock_ns() - end_ns, kSpinNs);
  lag_cpu_ns_ += longest_ns - own_ns;
}

// Numbers are stored and notified in one order for all threads: a worker sees its number before it
// sleeps, or is seen to sleep.
void ThreadPool::give_to_workers(const Job& job) {
  for (size_t i = 1; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    part.job = job;
    part.begun.store(part.begun.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    part.begun.notify_one();
  }
}

// With a core to itself a thread's processor time is the time that passes, which is cheaper to ask.
int64_t ThreadPool::work_clock_ns() const { return options_.spin ? wall_ns() : thread_cpu_ns(); }

void ThreadPool::set_ranges(int64_t count, int64_t unit, std::span<const int64_t> starts) {
  WIDEEP_CHECK(count < int64_t{1} << 32);
  WIDEEP_CHECK(starts.empty() || starts.size() == parts_.size());
  const size_t threads = parts_.size();
  // To the nearest unit: of two units for two threads each gets one, whoever is the faster.
  const auto place_of = [&](double share) {
    const double units = share * static_cast<double>(count) / static_cast<double>(unit);
    return std::min<int64_t>(count, std::llround(units) * unit);
  };
  int64_t begin = 0;
  for (size_t i = 0; i < threads; ++i) {
    int64_t end = count;
    if (i + 1 < threads) end = starts.empty() ? place_of(range_begins_[i + 1]) : starts[i + 1];
    const int64_t shared = (end - begin + kSharedPart - 1) / kSharedPart;
    const int64_t own = options_.spin ? (end - begin - shared) / unit * unit : 0;
    parts_[i].start = static_cast<uint32_t>(begin);
    parts_[i].range.set({begin + own, end});
    begin = end;
  }
}

// Who has taken more than its range is faster than was thought.
void ThreadPool::learn_speeds(int64_t count, int64_t unit) {
  const size_t threads = parts_.size();
  if (!options_.spin || count < kUnitsToLearn * unit * static_cast<int64_t>(threads)) return;
  const double equal = 1.0 / static_cast<double>(threads);
  double before = 0.0, all = 0.0;  // the share of the threads before, as it was and as it will be
  for (size_t i = 0; i < threads; ++i) {
    const int64_t end = i + 1 < threads ? parts_[i + 1].start : count;
    const double had = static_cast<double>(std::max<int64_t>(end - parts_[i].start, 1));
    double share = range_begins_[i + 1] - before;
    before = range_begins_[i + 1];
    share *= 1.0 + kStep * (static_cast<double>(parts_[i].taken) / had - 1.0);
    all += std::clamp(share, equal / kMostUnequal, equal * kMostUnequal);
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
    const int64_t middle = std::max(items.begin, (items.end - size + unit - 1) / unit * unit);
    if (replace(items, {items.begin, middle})) return {middle, items.end};
  }
  return {};
}

// Of the thread's own range, then of the longest that is left.
int64_t ThreadPool::take_of_range(const Job& job, int thread, int64_t* end) {
  Items taken = parts_[static_cast<size_t>(thread)].range.take_first(job.grain);
  const auto longest = [&]() -> Range& {
    return std::max_element(parts_.begin(), parts_.end(),
                            [](const Part& a, const Part& b) {
                              return a.range.left().size() < b.range.left().size();
                            })
        ->range;
  };
  // A last unit is not worth fetching from another core that is at work.
  const int64_t left_alone = options_.spin ? job.grain : 0;
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
  Part& part = parts_[static_cast<size_t>(index)];
  for (uint32_t number = 1;; ++number) {
    wait_while_equal(part.begun, number - 1);
    const Job job = part.job;
    if (job.call == nullptr) return;
    const int64_t begin_ns = work_clock_ns();
    run_chunks(job, index);
    part.used_ns = work_clock_ns() - begin_ns;
    part.done.store(number, std::memory_order_seq_cst);
    part.done.notify_one();
  }
}

}  // namespace wideep::base
