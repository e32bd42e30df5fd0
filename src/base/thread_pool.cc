// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/cpu_time.h"

namespace wideep::base {

ThreadPool::ThreadPool(int num_threads) {
  WIDEEP_CHECK_GE(num_threads, 1);
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { worker_loop(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, const Body& body) {
  if (count <= 0) return;
  body_ = &body;
  count_ = count;
  grain_ = std::max<int64_t>(grain, 1);
  next_.store(0, std::memory_order_relaxed);
  longest_ns_.store(0, std::memory_order_relaxed);
  const bool alone = workers_.empty() || count <= grain_;
  if (!alone) {
    {
      std::lock_guard lock(mutex_);
      ++generation_;
      active_ = static_cast<int>(workers_.size());
    }
    start_.notify_all();
  }
  const int64_t own_ns = run_chunks();
  if (!alone) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return active_ == 0; });
  }
  lag_cpu_ns_ += longest_ns_.load(std::memory_order_relaxed) - own_ns;
}

int64_t ThreadPool::run_chunks() {
  const int64_t start_ns = thread_cpu_ns();
  for (;;) {
    const int64_t begin = next_.fetch_add(grain_, std::memory_order_relaxed);
    if (begin >= count_) break;
    (*body_)(begin, std::min(begin + grain_, count_));
  }
  const int64_t used_ns = thread_cpu_ns() - start_ns;
  int64_t longest = longest_ns_.load(std::memory_order_relaxed);
  while (used_ns > longest && !longest_ns_.compare_exchange_weak(longest, used_ns)) {
  }
  return used_ns;
}

void ThreadPool::worker_loop() {
  uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
    }
    run_chunks();
    {
      std::lock_guard lock(mutex_);
      --active_;
    }
    done_.notify_one();
  }
}

}  // namespace wideep::base
