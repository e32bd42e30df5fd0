// SPDX-License-Identifier: Apache-2.0
#include "weights/load_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <numeric>

namespace wideep::weights {
namespace {

// Jobs of several sizes, whose units count how often they are loaded.
struct Work {
  std::vector<std::byte> source = std::vector<std::byte>(size_t{5} << 20);
  std::deque<std::vector<std::atomic<int>>> loads;
  LoadQueue queue;
  uint64_t bytes = 0;

  void add(size_t num_bytes, int64_t num_units) {
    auto& counts = loads.emplace_back(static_cast<size_t>(num_units));
    const std::span<const std::byte> all(source);
    const size_t half = num_bytes / 2;
    queue.add({.sources = {all.first(half), all.subspan(half, num_bytes - half)},
               .num_units = num_units,
               .load = [&counts](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) ++counts[static_cast<size_t>(i)];
                 return Status();
               }});
    bytes += num_bytes;
  }
  void expect_each_once() const {
    for (const auto& counts : loads) {
      for (const auto& count : counts) ASSERT_EQ(count.load(), 1);
    }
  }
};

TEST(LoadQueue, LoadsEveryUnitOnceAndReportsEveryByte) {
  base::ThreadPool threads(3);
  for (base::ThreadPool* pool : {static_cast<base::ThreadPool*>(nullptr), &threads}) {
    Work work;
    for (const auto& [bytes, units] : {std::pair<size_t, int64_t>{0, 1},
                                       {7, 1},
                                       {7, 10},
                                       {(5 << 20) - 1, 3},
                                       {5 << 20, 1000},
                                       {1 << 20, 7},
                                       {(3 << 20) + 11, 100'000}}) {
      work.add(bytes, units);
    }
    uint64_t reported = 0;
    EXPECT_TRUE(work.queue.run(pool, [&](uint64_t bytes) { reported += bytes; }).ok());
    work.expect_each_once();
    EXPECT_EQ(reported, work.bytes);
  }
}

TEST(LoadQueue, RunRemovesTheJobs) {
  Work work;
  work.add(100, 4);
  EXPECT_TRUE(work.queue.run(nullptr, [](uint64_t) {}).ok());
  EXPECT_TRUE(work.queue.run(nullptr, [](uint64_t) { FAIL(); }).ok());
  work.expect_each_once();
}

TEST(LoadQueue, ReturnsTheErrorOfTheFirstJob) {
  base::ThreadPool threads(3);
  Work work;
  for (int job = 0; job < 40; ++job) {
    work.queue.add({.sources = {std::span(work.source)}, .load = [job](int64_t, int64_t) {
                      return job < 7 ? Status() : invalid_input(std::to_string(job));
                    }});
  }
  EXPECT_EQ(work.queue.run(&threads, [](uint64_t) {}).message(), "7");
}

TEST(LoadJob, BytesOfUnitsAddUpToTheTotal) {
  const std::vector<std::byte> source(1001);
  const LoadJob job{.sources = {std::span(source).first(10), source}, .num_units = 17, .load = {}};
  size_t sum = 0;
  for (int64_t unit = 0; unit < job.num_units; ++unit) sum += job.source_bytes(unit, unit + 1);
  EXPECT_EQ(sum, 1011u);
  EXPECT_EQ(job.source_bytes(0, job.num_units), 1011u);
}

}  // namespace
}  // namespace wideep::weights
