// SPDX-License-Identifier: Apache-2.0
//
// The threads of one rank. The owner, which calls parallel_for, works too: a pool of one thread
// starts no other thread.
//
// The pause between two parallel_for calls of a forward pass is shorter than the time to wake a
// sleeping thread (20 to 40 µs). Where each thread of the machine's ranks has its own core, threads
// therefore spin for a while before they sleep. Otherwise they must not: a spinning thread would
// take the core from the thread that it waits for.
//
// Thread safety: one thread owns a pool and calls parallel_for; the body runs on all its threads.
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
  bool spin = false;  // spin before sleeping: for threads that have cores of their own
  // The processor of each thread, the owner's first; empty: the operating system chooses. The owner
  // stays bound to its processor after the pool is destroyed.
  std::vector<int> processors;
};

class ThreadPool {
 public:
  // The calling thread becomes the owner. Throws std::system_error if a thread cannot be started.
  // REQUIRES: num_threads >= 1; processors is empty or has num_threads entries.
  explicit ThreadPool(ThreadPoolOptions options);
  explicit ThreadPool(int num_threads) : ThreadPool(ThreadPoolOptions{num_threads, false, {}}) {}
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) for chunks of at most `grain` items that together cover [0, count), in
  // any order and on any thread, and returns when all are done. Threads take one chunk at a time,
  // which balances chunks of unequal cost. The body must not throw.
  template <typename Body>
  void parallel_for(int64_t count, int64_t grain, Body&& body) {
    run(job_of(count, grain, body));
  }

  // The same for work where a thread should process neighbouring items in order, and each chunk has
  // a fixed cost. Each thread first processes its own range, in chunks that shrink down to `unit`
  // (all chunks but the last are multiples of it), and then takes chunks from the ends of other
  // ranges. So all threads finish within about one unit of each other. With `spin`, the first chunk
  // is most of the range and no other thread can take it: a thread that becomes much slower during
  // the job delays its end. A pool of one thread calls the body once.
  // starts: the first item of each thread's range, ascending from 0, multiples of `unit`; empty: by
  // range_begin() times count. A caller whose items have unequal costs computes it from
  // range_begin() and the costs. REQUIRES: count < 2³².
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

  // The share of a job's work, from 0 to 1, for the threads before this one. Shares follow the
  // speeds that threads had in recent jobs, because cores are not equally fast. Owner only.
  double range_begin(int thread) const { return range_begins_[static_cast<size_t>(thread)]; }

  // Nanoseconds to add to the owner's processor time to get the critical path of the rank: the sum
  // over all jobs of (time of the busiest thread − time of the owner − time the owner spun). Owner
  // only.
  int64_t lag_cpu_ns() const { return lag_cpu_ns_; }

 private:
  // A null `call` makes the workers end.
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
  void publish_to_workers(const Job& job);
  void worker_loop(int index);
  void end_workers();
  void run_chunks(const Job& job, int thread);
  // Returns the begin of the next chunk and sets its end; returns the job's count if none is left.
  int64_t take(const Job& job, int thread, int64_t* end);
  int64_t take_of_range(const Job& job, int thread, int64_t* end);

  struct Items {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  // The items of a thread's range that no thread has taken yet. Its own thread takes from the
  // begin, other threads from the end. Both take a part of what is left, in whole units except at
  // the end of the job, and get an empty result if nothing is left. Begin and end share one word,
  // so that a compare-and-swap can move either without overlap.
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

  // What the owner and one thread exchange. It fits into one cache line, because moving a line from
  // core to core takes 60 to 300 ns, more than all else of a short job. Between two jobs only the
  // owner writes it. During a job the thread writes its results, and all threads may change
  // `range`. The owner, as a thread, has one too.
  struct alignas(64) Part {
    std::atomic<uint32_t> begun{0};  // number of the last published job
    std::atomic<uint32_t> done{0};   // number of the last job that the worker has finished
    Range range;
    Job job;              // published by `begun`
    uint32_t start = 0;   // first item of the thread's range; only this thread takes [start, range)
    uint32_t taken = 0;   // items that it processed, in a job with ranges; published by `done`
    int64_t used_ns = 0;  // processor time that it used in the job; published by `done`
  };
  static_assert(sizeof(Part) == 64);

  int64_t lag_cpu_ns_ = 0;                    // owner only
  std::vector<double> range_begins_;          // [num_threads + 1], from 0 to 1; owner only
  alignas(64) std::atomic<int64_t> next_{0};  // of jobs without ranges: the first item not taken
  std::vector<Part> parts_;                   // one per thread, the owner's first
  std::vector<std::thread> workers_;          // declared last, because they use all members above
};

}  // namespace wideep::base
