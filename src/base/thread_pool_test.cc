// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/cpu_time.h"

namespace wideep::base {
namespace {

TEST(ThreadPool, EveryRowExactlyOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 7, 64, 1000}) {
      std::vector<std::atomic<int>> seen(count);
      pool.parallel_for(count, 7, [&](int64_t begin, int64_t end) {
        ASSERT_LE(end - begin, 7);
        for (int64_t i = begin; i < end; ++i) ++seen[i];
      });
      for (const auto& times : seen) ASSERT_EQ(times.load(), 1);
    }
  }
}

TEST(ThreadPool, ResultsAreVisibleAfterReturn) {
  ThreadPool pool(3);
  std::vector<int64_t> squares(10'000);
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(10'000, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) squares[i] = i * i + round;
    });
    ASSERT_EQ(squares[9'999], 9'999 * 9'999 + round);
  }
}

void burn(int64_t cpu_ns) {
  const int64_t start = thread_cpu_ns();
  while (thread_cpu_ns() - start < cpu_ns) {
  }
}

TEST(ThreadPool, LagIsWhatTheBusiestThreadNeedsBeyondTheOwner) {
  ThreadPool pool(2);
  std::atomic<bool> worker_took_one{false};
  const auto owner = std::this_thread::get_id();
  pool.parallel_for(2, 1, [&](int64_t, int64_t) {
    if (std::this_thread::get_id() != owner) {
      worker_took_one = true;
      burn(20'000'000);
    } else {
      while (!worker_took_one) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_GE(pool.lag_cpu_ns(), 10'000'000);
  EXPECT_LT(pool.lag_cpu_ns(), 40'000'000);
}

TEST(ThreadPool, AloneThereIsNoLag) {
  ThreadPool pool(1);
  pool.parallel_for(2, 1, [&](int64_t, int64_t) { burn(1'000'000); });
  EXPECT_EQ(pool.lag_cpu_ns(), 0);
}

}  // namespace
}  // namespace wideep::base
