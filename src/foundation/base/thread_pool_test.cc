// SPDX-License-Identifier: Apache-2.0
//
// Bodies wait for each other, so that it is certain which thread takes which chunk, and sizes of
// chunks are those worked out by hand. Every item must come exactly once, for several counts of
// threads, empty ranges and a last unit that is not whole: one that is left out is a row with an
// old result, without an error. Where a test depends on speeds, its bounds are wide, since the
// machine may be busy.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_time.h"

namespace wideep::base {
namespace {

TEST(ThreadPool, EveryRowExactlyOnce) {
  for (const auto& [threads, spin] :
       {std::pair(1, false), {2, false}, {5, false}, {1, true}, {2, true}}) {
    ThreadPool pool({.num_threads = threads, .spin = spin});
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

class EveryWait : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(ThreadPool, EveryWait, testing::Bool());

using Chunk = std::pair<int64_t, int64_t>;

// The chunks that the owner takes in a job of 103 items, in its order. The worker waits until the
// owner has finished its own range.
std::vector<Chunk> chunks_of_owner(bool spin) {
  ThreadPool pool({.num_threads = 2, .spin = spin});
  const auto owner = std::this_thread::get_id();
  std::vector<Chunk> chunks;
  int64_t covered = 0;
  std::atomic<bool> owner_is_done = false;
  pool.parallel_for_ranges(103, 4, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(begin % 4, 0);
    if (std::this_thread::get_id() != owner) {
      while (!owner_is_done) std::this_thread::yield();
      return;
    }
    chunks.push_back({begin, end});
    covered += end - begin;
    owner_is_done = covered >= 52;  // its own range
  });
  return chunks;
}

TEST(ThreadPool, ChunksShrinkToOneUnit) {
  const std::vector<Chunk> chunks = chunks_of_owner(false);
  // Of its own range, half of what is left each time, in whole units of 4; one unit at the end.
  const std::vector<Chunk> expected = {{0, 24}, {24, 36}, {36, 44}, {44, 48}, {48, 52}};
  ASSERT_GE(chunks.size(), expected.size());
  EXPECT_EQ(std::vector<Chunk>(chunks.begin(), chunks.begin() + 5), expected);
}

TEST(ThreadPool, SpinningThreadTakesMostOfItsRangeAtOnce) {
  const std::vector<Chunk> chunks = chunks_of_owner(true);
  EXPECT_EQ(chunks.front(), Chunk(0, 44));
  EXPECT_EQ(chunks[1], Chunk(44, 48));
}

TEST(ThreadPool, OneThreadHasOneChunk) {
  ThreadPool pool(1);
  std::vector<Chunk> chunks;
  pool.parallel_for_ranges(103, 4,
                           [&](int64_t begin, int64_t end) { chunks.push_back({begin, end}); });
  EXPECT_EQ(chunks, std::vector<Chunk>{Chunk(0, 103)});
}

void pass(int64_t ns) {
  const int64_t start = wall_ns();
  while (wall_ns() - start < ns) {
  }
}

// Ranges follow the threads' speeds, within bounds. A pool without `spin` learns nothing.
TEST(ThreadPool, RangesGrowWithSpeed) {
  for (const bool spin : {true, false}) {
    ThreadPool pool({.num_threads = 2, .spin = spin});
    const auto owner = std::this_thread::get_id();
    EXPECT_EQ(pool.range_begin(1), 0.5);
    for (int job = 0; job < 200; ++job) {
      pool.parallel_for_ranges(64, 1, [&](int64_t begin, int64_t end) {
        const bool slow = std::this_thread::get_id() != owner;
        pass((end - begin) * (slow ? 1'500 : 500));
      });
    }
    EXPECT_EQ(pool.range_begin(0), 0.0);
    if (spin) {  // 3/4 of the work, less where the machine is busy
      EXPECT_GT(pool.range_begin(1), 0.55);
      EXPECT_LE(pool.range_begin(1), 0.8);
    } else {
      EXPECT_EQ(pool.range_begin(1), 0.5);
    }
  }
}

// An owner that was a little slower in earlier jobs still gets one of two units.
TEST(ThreadPool, EachOfTwoThreadsGetsOneOfTwoUnits) {
  ThreadPool pool({.num_threads = 2, .spin = true});
  const auto owner = std::this_thread::get_id();
  for (int job = 0; job < 5; ++job) {
    std::atomic<int64_t> of_worker{0};
    int64_t of_owner = 0;
    pool.parallel_for_ranges(64, 1, [&](int64_t begin, int64_t end) {
      if (std::this_thread::get_id() != owner) {
        of_worker += end - begin;
        return;
      }
      of_owner += end - begin;
      // Wait until the worker has done all but one unit, which it leaves to the owner.
      while (of_worker + of_owner < 63) std::this_thread::yield();
    });
  }
  ASSERT_LT(pool.range_begin(1), 0.5);
  ASSERT_GT(pool.range_begin(1), 0.25);
  for (int job = 0; job < 20; ++job) {
    std::atomic<int64_t> of_owner{0};
    pool.parallel_for_ranges(8, 4, [&](int64_t begin, int64_t end) {
      if (std::this_thread::get_id() == owner) of_owner += end - begin;
    });
    EXPECT_EQ(of_owner.load(), 4);
  }
}

// Also with empty ranges, and with one range that holds all items.
TEST(ThreadPool, RangesCoverEverythingOnce) {
  for (const bool spin : {false, true}) {
    ThreadPool pool({.num_threads = 4, .spin = spin});
    for (const std::vector<int64_t>& starts :
         {std::vector<int64_t>{}, {0, 30, 600, 900}, {0, 0, 0, 0}, {0, 999, 999, 999}}) {
      for (const int64_t count : {1, 2, 3, 1000}) {
        if (!starts.empty() && count < 1000) continue;
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        const auto mark = [&](int64_t begin, int64_t end) {
          ASSERT_EQ(begin % 3, 0);
          ASSERT_TRUE(end % 3 == 0 || end == count);
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        };
        pool.parallel_for_ranges(count, 3, mark, starts);
        for (const auto& times : seen) ASSERT_EQ(times.load(), 1);
      }
    }
  }
}

// The last unit is not whole, and the begin of the last range, rounded to the nearest unit, lies
// behind the last item.
TEST(ThreadPool, RangesEndAtTheLastItem) {
  ThreadPool pool({.num_threads = 8, .spin = true});
  std::array<std::atomic<int>, 7> seen{};
  pool.parallel_for_ranges(7, 4, [&](int64_t begin, int64_t end) {
    ASSERT_LE(end, 7);
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  for (const auto& times : seen) EXPECT_EQ(times.load(), 1);
}

// The owner's range holds all items and its first chunk takes long: the worker takes chunks of it.
TEST(ThreadPool, IdleThreadTakesFromOtherRanges) {
  ThreadPool pool({.num_threads = 2});
  const auto owner = std::this_thread::get_id();
  std::atomic<bool> helped{false};
  pool.parallel_for_ranges(
      100, 1,
      [&](int64_t begin, int64_t) {
        if (std::this_thread::get_id() != owner) {
          helped = true;
          return;
        }
        if (begin == 0) {
          while (!helped) std::this_thread::yield();
        }
      },
      std::vector<int64_t>{0, 100});
  EXPECT_TRUE(helped);
}

TEST_P(EveryWait, ResultsAreVisibleAfterReturn) {
  ThreadPool pool({.num_threads = 2, .spin = GetParam()});
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

TEST_P(EveryWait, LagIsTheBusiestThreadsTimeBeyondTheOwners) {
  ThreadPool pool({.num_threads = 2, .spin = GetParam()});
  std::atomic<bool> worker_took_one{false};
  const auto owner = std::this_thread::get_id();
  const int64_t before = thread_cpu_ns();
  pool.parallel_for(2, 1, [&](int64_t, int64_t) {
    if (std::this_thread::get_id() != owner) {
      worker_took_one = true;
      burn(20'000'000);
    } else {
      while (!worker_took_one) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  // Owner's processor time + lag = the worker's 20 ms. A spinning pool measures wall time, and the
  // owner sleeps here, so that only a smaller bound holds for it.
  const int64_t critical = thread_cpu_ns() - before + pool.lag_cpu_ns();
  EXPECT_GE(critical, GetParam() ? 5'000'000 : 20'000'000);
  if (!GetParam()) {  // time that passes depends on the machine's load
    EXPECT_LT(critical, 40'000'000);
  }
}

TEST(ThreadPool, ThreadsStayOnTheirProcessors) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE && processors.size() < 2; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  if (processors.size() < 2) GTEST_SKIP() << "needs two processors";
  std::thread([&] {  // the pool binds its owner for good
    ThreadPool pool({.num_threads = 2, .processors = processors});
    const auto owner = std::this_thread::get_id();
    pool.parallel_for(1000, 1, [&](int64_t, int64_t) {
      const bool own = std::this_thread::get_id() == owner;
      ASSERT_EQ(::sched_getcpu(), processors[own ? 0 : 1]);
    });
  })
      .join();
}

TEST(ThreadPool, OneThreadHasNoLag) {
  ThreadPool pool(1);
  pool.parallel_for(2, 1, [&](int64_t, int64_t) { burn(1'000'000); });
  EXPECT_EQ(pool.lag_cpu_ns(), 0);
}

}  // namespace
}  // namespace wideep::base
