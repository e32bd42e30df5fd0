// SPDX-License-Identifier: Apache-2.0
//
// The choice of processors is held against made-up machines, each instruction set's loops against
// what they claim: every byte is copied, every cache line read. Measured limits have bounds that
// only a broken clock or a wrong count exceeds. Windows of microseconds must still give a limit: on
// a busy machine most windows are empty, and a limit of 0 would make each share infinite.
#include "measure/limits/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "measure/limits/loops.h"

namespace wideep::measure::limits {
namespace {

using ::testing::ElementsAre;

base::Machine machine_with(std::vector<std::vector<int>> cores, std::vector<int> allowed) {
  base::Machine machine;
  machine.topology.cores = std::move(cores);
  machine.allowed = std::move(allowed);
  return machine;
}

TEST(ChooseProcessors, OneOfEachCoreFirst) {
  const base::Machine machine = machine_with({{0, 4}, {1, 5}, {2, 6}}, {0, 1, 2, 4, 5, 6});
  EXPECT_THAT(choose_processors(machine, 2), ElementsAre(0, 1));
  EXPECT_THAT(choose_processors(machine, 5), ElementsAre(0, 1, 2, 4, 5));
  EXPECT_THAT(choose_processors(machine, 7), ElementsAre(0, 1, 2, 4, 5, 6, 0));
}

TEST(ChooseProcessors, OnlyThoseAllowed) {
  EXPECT_THAT(choose_processors(machine_with({{0, 4}, {1, 5}}, {4, 5}), 3), ElementsAre(4, 5, 4));
  EXPECT_THAT(choose_processors(machine_with({}, {}), 1), ElementsAre(0));
}

std::vector<const Loops*> runnable_loops() {
  std::vector<const Loops*> all = {portable_loops()};
#if defined(__x86_64__)
  for (const Loops* loops : {avx512_loops(), avx2_loops()}) {
    if (loops->supported()) all.push_back(loops);
  }
#endif
  return all;
}

struct alignas(64) Block {
  std::array<uint64_t, 1024> words;
};

TEST(Loops, CopyEveryByte) {
  for (const Loops* loops : runnable_loops()) {
    Block from, to{};
    std::iota(from.words.begin(), from.words.end(), 1);
    loops->copy(reinterpret_cast<const std::byte*>(&from), reinterpret_cast<std::byte*>(&to),
                sizeof from);
    EXPECT_EQ(from.words, to.words);
  }
}

// Setting one word of any line changes the result, unless the loop skips that line.
TEST(Loops, ReadEveryLine) {
  for (const Loops* loops : runnable_loops()) {
    const auto read = [&](const Block& block) {
      return loops->read(reinterpret_cast<const std::byte*>(&block), sizeof block);
    };
    Block block{};
    const uint64_t empty = read(block);
    for (size_t line = 0; line < block.words.size(); line += 8) {
      block.words[line] = 1;
      EXPECT_NE(read(block), empty) << "line " << line / 8;
      block.words[line] = 0;
    }
  }
}

TEST(Probe, MeasuresEveryLimit) {
  Probe probe(choose_processors(base::read_machine(), 2), 16 << 20);
  probe.set_duration(std::chrono::milliseconds(20));
  const Limits limits = probe.measure();
  // Wide bounds: only a broken clock or a wrong count exceeds them on today's machines.
  EXPECT_GT(limits.read_gbps, 0.05);
  EXPECT_LT(limits.read_gbps, 5'000.0);
  EXPECT_GT(limits.copy_gbps, 0.05);
  EXPECT_GT(limits.f32_gops, 0.1);
  EXPECT_LT(limits.f32_gops, 2'000.0);
  EXPECT_EQ(limits.gops(Operation::kF32), limits.f32_gops);
  EXPECT_GE(limits.flag_one_way_ns, 0.0);
}

// As on a machine so busy that a thread works in few windows: in so short ones only some have the
// end of a piece, and in the shortest ones none has.
TEST(Probe, FewWindowsAreEnough) {
  Probe probe({0}, 4 << 20);
  for (const int microseconds : {1, 15, 30, 60}) {
    probe.set_duration(std::chrono::microseconds(microseconds));
    for (int i = 0; i < 20; ++i) EXPECT_GT(probe.read_gbps(), 0.0) << microseconds;
  }
}

TEST(Probe, OneThreadHasNoFlagLatency) {
  Probe probe({0}, 4 << 20);
  EXPECT_EQ(probe.num_threads(), 1);
  EXPECT_EQ(probe.flag_one_way_ns(), 0.0);
}

}  // namespace
}  // namespace wideep::measure::limits
