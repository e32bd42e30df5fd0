// SPDX-License-Identifier: Apache-2.0
//
// The threads of one rank. The caller works too: a pool of one thread starts no other and runs
// everything inline.
//
// Between two parallel_for calls of a forward pass lie microseconds, less than it takes to wake a
// sleeping thread (20 to 40 µs). Where every thread of the machine's ranks has a core to itself,
// threads therefore spin for a while before they sleep; where it has not, spinning would take the
// core from the thread that is waited for.
//
// Thread safety: one thread owns a pool and calls parallel_for; the body runs on all of them.
//
//   ThreadPool pool({.num_threads = 2});
//   pool.parallel_for(num_rows, 16, [&](int64_t begin, int64_t end) { ... rows [begin, end) ... });
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace wideep::base {

struct ThreadPoolOptions {
  int num_threads = 1;
  bool spin = false;
  // Processor of each thread, the owner's first; empty: the operating system chooses. Binds the
  // thread that makes the pool for good.
  std::vector<int> processors;
};

class ThreadPool {
 public:
  // Throws std::system_error where the system gives no more threads.
  // REQUIRES: num_threads >= 1; processors are empty or as many.
  explicit ThreadPool(ThreadPoolOptions options);
  explicit ThreadPool(int num_threads) : ThreadPool(ThreadPoolOptions{num_threads, false, {}}) {}
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) for chunks of at most `grain` that together cover [0, count), in any
  // order and on any thread, and returns when all are done. Chunks are handed out one by one, so
  // that unequal ones even out. The body must not throw.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    run(job_of(count, grain, body));
  }

  // The same where what lies next to each other is best done by one thread, in order, and every
  // chunk costs something: each thread goes through a range of its own, in chunks that shrink to
  // `unit` (of which all but the last are multiples), and then helps others from the ends of
  // theirs, so that all finish within about a unit of each other. Where threads have cores to
  // themselves, most of a range is its first chunk, which nobody else can take: who becomes much
  // slower within a job is waited for. A pool of one thread has one chunk.
  // starts: where each thread's range begins, ascending from 0, multiples of `unit`: by cost, where
  // range_begin says; empty: there as items are counted. REQUIRES: count < 2³².
  template <typename Body>
  void parallel_for_ranges(int64_t count, int64_t unit, Body&& body,
                           std::span<const int64_t> starts = {}) {
    if (count <= 0) return;
    if (workers_.empty() || count <= unit) return body(0, count);
    set_ranges(count, unit, starts);
    Job job = job_of(count, unit, body);
    job.has_ranges = true;
    run(job);
    learn_speeds(count, unit);
  }

  // The share of a job's work that belongs to the threads before this one: as fast as each has been
  // of late, for cores are not equally fast. Owner only.
  double range_begin(int thread) const { return range_begins_[static_cast<size_t>(thread)]; }

  // By how much the busiest thread of each parallel_for exceeded what the owner worked, less what
  // the owner's spinning took, in nanoseconds of processor time, summed over all so far: the
  // owner's own processor time plus this is the rank's critical path.
  int64_t lag_cpu_ns() const { return lag_cpu_ns_; }

 private:
  // What all threads do; without a call: end.
  struct Job {
    void* body = nullptr;
    void (*call)(void* body, int64_t begin, int64_t end) = nullptr;
    int64_t count = 0;
    int32_t grain = 1;
    bool has_ranges = false;
  };
  template <typename Body>
  static Job job_of(int64_t count, int64_t grain, Body& body) {
    return {.body = const_cast<void*>(static_cast<const void*>(std::addressof(body))),
            .call = [](void* function, int64_t begin,
                       int64_t end) { (*static_cast<Body*>(function))(begin, end); },
            .count = count,
            .grain = static_cast<int32_t>(
                std::clamp<int64_t>(grain, 1, std::numeric_limits<int32_t>::max()))};
  }

  void run(const Job& job);
  void give_to_workers(const Job& job);
  void worker_loop(int index);
  void end_workers();
  void run_chunks(const Job& job, int thread);
  // The begin of the next chunk, or the job's count.
  int64_t take(const Job& job, int thread, int64_t* end);
  int64_t take_of_range(const Job& job, int thread, int64_t* end);

  struct Items {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  // What is left of a thread's range: the owner takes from its begin, others from its end. Both
  // take a share, in whole units but for the end of all; none if there is nothing.
  class Range {
   public:
    void set(Items items) { begin_and_end_.store(pack(items), std::memory_order_relaxed); }
    Items left() const { return unpack(begin_and_end_.load(std::memory_order_relaxed)); }
    Items take_first(int64_t unit);
    Items take_last(int64_t unit);

   private:
    static uint64_t pack(Items items) {
      return static_cast<uint64_t>(items.begin) << 32 | static_cast<uint64_t>(items.end);
    }
    static Items unpack(uint64_t bits) {
      return {static_cast<int64_t>(bits >> 32), static_cast<int64_t>(bits & 0xffffffff)};
    }
    bool replace(Items items, Items rest) {
      uint64_t bits = pack(items);
      return begin_and_end_.compare_exchange_weak(bits, pack(rest), std::memory_order_relaxed);
    }
    std::atomic<uint64_t> begin_and_end_{0};
  };
  void set_ranges(int64_t count, int64_t unit, std::span<const int64_t> starts);
  void learn_speeds(int64_t count, int64_t unit);

  int64_t work_clock_ns() const;
  void wait_while_equal(const std::atomic<uint32_t>& value, uint32_t old) const;

  ThreadPoolOptions options_;

  // All that the owner and a thread tell each other, on one cache line: it takes 60 to 300 ns from
  // one core to the other, and all else of a short job takes less. The owner writes it while the
  // worker rests; meanwhile the worker does, and who takes of its range. The owner has one too.
  struct alignas(64) Part {
    std::atomic<uint32_t> begun{0};  // number of the job
    std::atomic<uint32_t> done{0};   // the same once the worker has ended it
    Range range;
    Job job;
    uint32_t start = 0;   // of the job's range; what is before `range` nobody else may take
    uint32_t taken = 0;   // items of a job with ranges, told by `done`
    int64_t used_ns = 0;  // of processor time, likewise
  };
  static_assert(sizeof(Part) == 64);

  int64_t lag_cpu_ns_ = 0;                    // owner only, like the next
  std::vector<double> range_begins_;          // [num_threads + 1] from 0 to 1
  alignas(64) std::atomic<int64_t> next_{0};  // without ranges: first row nobody has taken
  std::vector<Part> parts_;                   // of each thread, the owner's first
  std::vector<std::thread> workers_;          // last: they use everything above
};

}  // namespace wideep::base
