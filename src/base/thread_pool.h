// SPDX-License-Identifier: Apache-2.0
//
// The threads of one rank. The caller works too: a pool of one thread starts no other and runs
// everything inline.
//
// Thread safety: one thread owns a pool and calls parallel_for; the body runs on all of them.
//
//   ThreadPool pool(2);
//   pool.parallel_for(num_rows, 16, [&](int64_t begin, int64_t end) { ... rows [begin, end) ... });
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace wideep::base {

class ThreadPool {
 public:
  // REQUIRES: num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end) for chunks of at most `grain` that together cover [0, count), in any
  // order and on any thread, and returns when all are done. Chunks are handed out one by one, so
  // that unequal ones even out. The body must not throw.
  using Body = std::function<void(int64_t begin, int64_t end)>;
  void parallel_for(int64_t count, int64_t grain, const Body& body);

  // By how much the busiest thread of each parallel_for exceeded the owner, in nanoseconds of
  // processor time, summed over all so far: the owner's own time plus this is the rank's critical
  // path.
  int64_t lag_cpu_ns() const { return lag_cpu_ns_; }

 private:
  void worker_loop();
  int64_t run_chunks();  // returns the processor time it took

  // Set by the owner while all workers rest; read by the workers after they saw generation_ change.
  const Body* body_ = nullptr;
  int64_t count_ = 0;
  int64_t grain_ = 1;

  std::atomic<int64_t> next_{0};        // first row nobody has taken
  std::atomic<int64_t> longest_ns_{0};  // of this parallel_for
  int64_t lag_cpu_ns_ = 0;              // owner only

  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  uint64_t generation_ = 0;           // guarded by mutex_
  int active_ = 0;                    // guarded by mutex_
  bool stop_ = false;                 // guarded by mutex_
  std::vector<std::thread> workers_;  // last: they use everything above
};

}  // namespace wideep::base
