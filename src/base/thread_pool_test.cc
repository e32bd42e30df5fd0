// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <gtest/gtest.h>

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

TEST(ThreadPool, CriticalTimeIsTheLongestChunkNotTheSum) {
  ThreadPool pool(2);
  pool.parallel_for(2, 1, [&](int64_t, int64_t) {
    const int64_t start = thread_cpu_ns();
    while (thread_cpu_ns() - start < 20'000'000) {
    }
  });
  // One thread may have taken both chunks (40 ms), never less than one of them.
  EXPECT_GE(pool.critical_cpu_ns(), 20'000'000);
  EXPECT_LT(pool.critical_cpu_ns(), 60'000'000);
}

}  // namespace
}  // namespace wideep::base
