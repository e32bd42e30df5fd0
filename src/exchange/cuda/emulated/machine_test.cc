// SPDX-License-Identifier: Apache-2.0
//
// The emulator runs good kernels and finds what is wrong with bad ones.
#include "cuda/emulated/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cuda/emulated/emulated_lane.h"

namespace wideep::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kDeadlineNs = 50'000'000;

struct Words {
  Words(Machine& machine, int n)
      : data(reinterpret_cast<uint32_t*>(
            machine.memory().allocate(static_cast<size_t>(n) * sizeof(uint32_t)))) {
    const std::vector<uint32_t> zeros(static_cast<size_t>(n));
    machine.memory().host_write(data, zeros.data(), zeros.size() * sizeof(uint32_t));
  }
  uint32_t* data;
};

uint32_t* unwritten(Machine& machine, int n) {
  return reinterpret_cast<uint32_t*>(
      machine.memory().allocate(static_cast<size_t>(n) * sizeof(uint32_t)));
}

// Runs a kernel with each of some seeds; the message of the last run.
template <typename MakeKernel>
std::string run_kernel(const MachineOptions& options, int num_blocks, int num_threads,
                       const MakeKernel& make_kernel) {
  std::string message;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    MachineOptions seeded = options;
    seeded.seed = seed;
    Machine machine(seeded);
    const auto kernel = make_kernel(machine);
    for (int device = 0; device < options.num_devices; ++device) {
      machine.launch(device, {"test", num_blocks, num_threads,
                              [kernel, device](EmulatedLane& lane) { kernel(lane, device); }});
    }
    const Status status = machine.run();
    if (seed > 1) {
      EXPECT_EQ(status.ok(), message.empty()) << status.message();
    }
    message = status.message();
  }
  return message;
}

// ---- good kernels ----

TEST(MachineTest, SumsOverABlockAndOverBlocks) {
  uint32_t* sums = nullptr;
  const std::string message =
      run_kernel({.max_blocks = 3, .max_threads = 96}, 3, 96, [&](Machine& machine) {
        uint32_t* out = sums = Words(machine, 4).data;
        return [out](EmulatedLane& lane, int) {
          auto* shared = lane.shared<uint32_t>();
          lane.store(shared + lane.thread(), static_cast<uint32_t>(lane.thread()));
          lane.sync();
          if (lane.thread() == 0) {
            uint32_t sum = 0;
            for (int i = 0; i < lane.num_threads(); ++i) sum += lane.load(shared + i);
            lane.store(out + lane.block(), sum);
            lane.atomic_add(out + 3, sum);
          }
        };
      });
  EXPECT_EQ(message, "");
}

TEST(MachineTest, WarpOperationsGiveWhatCudaGives) {
  Machine machine({.max_threads = 64});
  uint32_t* out = Words(machine, 64 * 3).data;
  machine.launch(0, {"test", 1, 64, [out](EmulatedLane& lane) {
                       const int t = lane.thread();
                       lane.store(out + t, lane.shuffle(static_cast<uint32_t>(t), 5));
                       lane.store(out + 64 + t, lane.ballot(t % 3 == 0));
                       lane.store(out + 128 + t, lane.match(t % 2));
                     }});
  ASSERT_EQ(machine.run().message(), "");
  for (int t = 0; t < 64; ++t) {
    EXPECT_EQ(out[t], t < 32 ? 5u : 37u);
    uint32_t thirds = 0, equal = 0;
    for (int i = 0; i < 32; ++i) {
      thirds |= (t / 32 * 32 + i) % 3 == 0 ? 1u << i : 0u;
      equal |= i % 2 == t % 2 ? 1u << i : 0u;
    }
    EXPECT_EQ(out[64 + t], thirds);
    EXPECT_EQ(out[128 + t], equal);
  }
}

// Passes a word from device 0 to device 1: data, then a flag.
auto pass_a_word(bool releases, bool acquires) {
  return [=](Machine& machine) {
    uint32_t* data = unwritten(machine, 1);
    uint32_t* flag = Words(machine, 1).data;
    uint32_t* got = Words(machine, 1).data;
    return [=](EmulatedLane& lane, int device) {
      if (lane.thread() != 0) return;
      if (device == 0) {
        lane.store(data, 7u);
        if (releases) {
          lane.store_release(flag, 1);
        } else {
          lane.atomic_or(flag, 1);
        }
      } else {
        while ((acquires ? lane.load_acquire(flag) : lane.load_relaxed(flag)) == 0) lane.pause();
        lane.store(got, lane.load(data));
      }
    };
  };
}

TEST(MachineTest, AFlagPassesWhatWasWrittenBeforeIt) {
  EXPECT_EQ(run_kernel({.num_devices = 2}, 1, 32, pass_a_word(true, true)), "");
}

TEST(MachineTest, LaunchesOfAStreamFollowEachOther) {
  Machine machine({.max_blocks = 2, .max_threads = 32});
  uint32_t* data = unwritten(machine, 64);
  uint32_t* sum = Words(machine, 1).data;
  machine.launch(0, {"write", 2, 32, [data](EmulatedLane& lane) {
                       const int i = lane.block() * 32 + lane.thread();
                       lane.store(data + i, static_cast<uint32_t>(i));
                     }});
  const auto read = [data, sum](EmulatedLane& lane) {
    lane.atomic_add(sum, lane.load(data + lane.thread()) + lane.load(data + 32 + lane.thread()));
  };
  machine.launch(0, {"read", 1, 32, read, 20});
  ASSERT_EQ(machine.run().message(), "");
  EXPECT_EQ(*sum, 64u * 63 / 2);
}

TEST(MachineTest, ADeadlinePassesIfNothingElseCanHappen) {
  Machine machine({.num_devices = 2});
  uint32_t* flag = Words(machine, 1).data;
  uint32_t* waited = Words(machine, 1).data;
  machine.launch(0, {"wait", 1, 32, [=](EmulatedLane& lane) {
                       if (lane.thread() != 0) return;
                       const uint64_t end = lane.now_ns() + kDeadlineNs;
                       while (lane.load_acquire(flag) == 0 && lane.now_ns() < end) lane.pause();
                       lane.store(waited, 1u);
                     }});
  ASSERT_EQ(machine.run().message(), "");
  EXPECT_EQ(*waited, 1u);
}

TEST(MachineTest, OneSeedIsOneOrder) {
  const auto switches = [](uint64_t seed) {
    Machine machine({.num_devices = 2, .max_threads = 64, .seed = seed});
    uint32_t* word = Words(machine, 1).data;
    for (int device = 0; device < 2; ++device) {
      machine.launch(device, {"add", 1, 64, [=](EmulatedLane& lane) {
                                lane.atomic_add(word, 1);
                                lane.sync();
                              }});
    }
    EXPECT_TRUE(machine.run().ok());
    EXPECT_EQ(*word, 128u);
    return machine.num_switches();
  };
  EXPECT_EQ(switches(3), switches(3));
}

// ---- dependent launches ----

// A kernel writes words, the next one, a dependent launch, reads them: after having awaited it or
// not. The message of the run with this seed, and whether they overlapped.
struct Overlap {
  bool lets_begin = true;
  bool awaits = true;
  bool writes_before = false;  // the second one, what the first one reads
  bool lets_begin_first = false;
};
std::pair<std::string, uint64_t> run_two(const Overlap& how, uint64_t seed, bool overlaps) {
  Machine machine(
      {.max_blocks = 2, .max_threads = 64, .seed = seed, .overlaps_launches = overlaps});
  uint32_t* data = unwritten(machine, 128);
  uint32_t* read = Words(machine, 1).data;
  const auto first = [=](EmulatedLane& lane) {
    if (how.lets_begin) lane.let_successor_begin();
    lane.sync();
    lane.load(read);
    lane.store(data + lane.block() * 64 + lane.thread(), 1u);
  };
  const auto second = [=](EmulatedLane& lane) {
    if (how.lets_begin_first) lane.let_successor_begin();
    if (how.writes_before && lane.block() == 0 && lane.thread() == 0) lane.store(read, 1u);
    if (how.awaits) lane.await_predecessor();
    lane.atomic_add(read + 0, 0u);
    lane.load(data + lane.thread());
  };
  machine.launch(0, {"first", 2, 64, first});
  machine.launch(0, {"second", 1, 64, second, 0, true});
  std::string message = machine.run().message();
  return {std::move(message), machine.num_overlaps()};
}

TEST(MachineTest, ADependentLaunchBeginsBeforeThePredecessorEndsAndSeesItsWritesAfterTheWait) {
  uint64_t overlaps = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto [message, overlapped] = run_two({}, seed, true);
    EXPECT_EQ(message, "");
    overlaps += overlapped;
    EXPECT_EQ(run_two({}, seed, false), std::pair(std::string(), uint64_t{0}));
    EXPECT_EQ(run_two({.lets_begin = false}, seed, true), std::pair(std::string(), uint64_t{0}));
  }
  EXPECT_EQ(overlaps, 20u);
}

// Whether or not this run had them overlap.
TEST(MachineTest, FindsADependentLaunchThatDoesNotAwaitItsPredecessor) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool overlaps : {false, true}) {
      EXPECT_THAT(run_two({.awaits = false}, seed, overlaps).first,
                  AllOf(HasSubstr("kernel second"),
                        ::testing::AnyOf(HasSubstr("race"), HasSubstr("nobody has written"))));
      EXPECT_THAT(run_two({.writes_before = true}, seed, overlaps).first, HasSubstr("race"));
      EXPECT_THAT(run_two({.lets_begin_first = true}, seed, overlaps).first,
                  HasSubstr("lets the next kernel begin without having awaited"));
    }
  }
}

TEST(MachineTest, FindsADependentLaunchThatEndsWithoutHavingAwaitedItsPredecessor) {
  Machine machine({.overlaps_launches = true});
  machine.launch(0, {"first", 1, 32, [](EmulatedLane& lane) { lane.let_successor_begin(); }});
  machine.launch(0, {"second", 1, 32, [](EmulatedLane&) {}, 0, true});
  EXPECT_THAT(machine.run().message(), HasSubstr("ended without having awaited"));
}

// A third launch sees what the first one did, because the second one awaited it.
TEST(MachineTest, DependentLaunchesInARowOverlapTwoAtATime) {
  uint64_t overlaps = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Machine machine({.max_blocks = 2, .max_threads = 32, .seed = seed, .overlaps_launches = true});
    uint32_t* word = Words(machine, 1).data;
    constexpr uint32_t kLaunches = 6;
    for (uint32_t i = 0; i < kLaunches; ++i) {
      machine.launch(0, {"count", 2, 32,
                         [=](EmulatedLane& lane) {
                           lane.await_predecessor();
                           lane.let_successor_begin();
                           if (lane.block() != 1 || lane.thread() != 3) return;
                           lane.store(word, lane.load(word) + 1);
                         },
                         static_cast<int>(seed % 3 * 10), true});
    }
    EXPECT_EQ(machine.run().message(), "");
    EXPECT_EQ(*word, kLaunches);
    overlaps += machine.num_overlaps();
  }
  EXPECT_GT(overlaps, 20u);
}

// ---- bad kernels ----

TEST(MachineTest, FindsAMissingRelease) {
  EXPECT_THAT(run_kernel({.num_devices = 2}, 1, 32, pass_a_word(false, true)),
              AllOf(HasSubstr("race"), HasSubstr("rank 1, block 0, thread 0")));
}

TEST(MachineTest, FindsAMissingAcquire) {
  EXPECT_THAT(run_kernel({.num_devices = 2}, 1, 32, pass_a_word(true, false)), HasSubstr("race"));
}

TEST(MachineTest, FindsAMissingBarrier) {
  EXPECT_THAT(run_kernel({.max_threads = 64}, 1, 64,
                         [](Machine&) {
                           return [](EmulatedLane& lane, int) {
                             auto* shared = lane.shared<uint32_t>();
                             lane.store(shared + lane.thread(), 1u);
                             lane.load(shared + (lane.thread() + 1) % 64);
                           };
                         }),
              ::testing::AnyOf(HasSubstr("race"), HasSubstr("nobody has written")));
}

TEST(MachineTest, FindsThatABarrierOfTheBlockDoesNotOrderBlocks) {
  EXPECT_THAT(run_kernel({.max_blocks = 2}, 2, 32,
                         [](Machine& machine) {
                           uint32_t* word = Words(machine, 1).data;
                           return [word](EmulatedLane& lane, int) {
                             if (lane.block() == 0 && lane.thread() == 0) lane.store(word, 1u);
                             lane.sync();
                             if (lane.block() == 1 && lane.thread() == 0) lane.load(word);
                           };
                         }),
              HasSubstr("race"));
}

TEST(MachineTest, FindsADivergentBarrier) {
  EXPECT_THAT(run_kernel({.max_threads = 64}, 1, 64,
                         [](Machine&) {
                           return [](EmulatedLane& lane, int) {
                             if (lane.thread() != 40) lane.sync();
                           };
                         }),
              HasSubstr("rank 0, block 0, thread"));
}

TEST(MachineTest, FindsADivergentWarpOperation) {
  const auto kernel = [](EmulatedLane& lane, int) {  // within a macro all lines would be one
    if (lane.lane() < 16) {
      lane.ballot(true);
    } else {
      lane.ballot(false);
    }
  };
  EXPECT_THAT(run_kernel({}, 1, 32, [&](Machine&) { return kernel; }),
              HasSubstr("warp operation while other lanes are at line"));
}

TEST(MachineTest, FindsLanesThatWaitForEndedOnes) {
  EXPECT_NE(run_kernel({}, 1, 32,
                       [](Machine&) {
                         return [](EmulatedLane& lane, int) {
                           if (lane.lane() != 3) lane.ballot(true);
                         };
                       }),
            "");
}

TEST(MachineTest, FindsThreadsThatWaitForEachOther) {
  EXPECT_THAT(run_kernel({.max_threads = 64}, 1, 64,
                         [](Machine&) {
                           return [](EmulatedLane& lane, int) {
                             if (lane.warp() == 0 || lane.lane() < 16) {
                               lane.sync();
                             } else {
                               lane.ballot(true);
                             }
                             lane.sync();
                             lane.ballot(true);
                           };
                         }),
              HasSubstr("waits for ever"));
}

TEST(MachineTest, FindsALostFlag) {
  EXPECT_THAT(run_kernel({}, 1, 32,
                         [](Machine& machine) {
                           uint32_t* flag = Words(machine, 1).data;
                           return [flag](EmulatedLane& lane, int) {
                             while (lane.load_acquire(flag) == 0) lane.pause();
                           };
                         }),
              HasSubstr("polls for what will never come"));
}

TEST(MachineTest, FindsReadsOfUnwrittenBytes) {
  for (const bool in_shared : {false, true}) {
    EXPECT_THAT(run_kernel({}, 1, 32,
                           [in_shared](Machine& machine) {
                             uint32_t* word = unwritten(machine, 1);
                             return [word, in_shared](EmulatedLane& lane, int) {
                               lane.load(in_shared ? lane.shared<uint32_t>() : word);
                             };
                           }),
                HasSubstr("nobody has written"));
  }
}

TEST(MachineTest, FindsAccessesOutOfBounds) {
  EXPECT_THAT(run_kernel({}, 1, 32,
                         [](Machine& machine) {
                           uint32_t* words = Words(machine, 31).data;
                           return [words](EmulatedLane& lane, int) {
                             lane.store(words + lane.thread(), 1u);
                           };
                         }),
              HasSubstr("out of bounds"));
}

TEST(MachineTest, FindsUnalignedAccesses) {
  EXPECT_THAT(run_kernel({}, 1, 32,
                         [](Machine& machine) {
                           uint32_t* words = Words(machine, 8).data;
                           return [words](EmulatedLane& lane, int) {
                             lane.load(reinterpret_cast<const Vector*>(words + 1));
                           };
                         }),
              HasSubstr("not aligned"));
}

TEST(MachineTest, FindsThatAWriteComesBeforeOthersHaveRead) {
  EXPECT_THAT(run_kernel({.max_threads = 64}, 1, 64,
                         [](Machine& machine) {
                           uint32_t* word = Words(machine, 1).data;
                           return [word](EmulatedLane& lane, int) {
                             lane.load(word);
                             if (lane.thread() == 0) lane.store(word, 1u);
                           };
                         }),
              HasSubstr("race"));
}

TEST(MachineTest, FindsALoopThatDoesNotEnd) {
  EXPECT_THAT(run_kernel({.max_accesses = 1000}, 1, 32,
                         [](Machine& machine) {
                           uint32_t* word = Words(machine, 1).data;
                           return [word](EmulatedLane& lane, int) {
                             while (lane.load(word) == 0) {
                             }
                           };
                         }),
              HasSubstr("a loop that does not end"));
}

TEST(MachineTest, CanRunAgainAfterAnError) {
  Machine machine({});
  uint32_t* word = Words(machine, 1).data;
  machine.launch(0, {"bad", 1, 32, [](EmulatedLane& lane) {
                       if (lane.lane() != 0) lane.sync();
                     }});
  EXPECT_FALSE(machine.run().ok());
  machine.launch(0, {"good", 1, 32, [=](EmulatedLane& lane) { lane.atomic_add(word, 1); }});
  EXPECT_EQ(machine.run().message(), "");
  EXPECT_EQ(*word, 32u);
}

}  // namespace
}  // namespace wideep::cuda
