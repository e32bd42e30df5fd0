// SPDX-License-Identifier: Apache-2.0
//
// The threads, warps, blocks, grids and devices of a Machine.
//
// Thread safety: those of their machine.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cuda/emulated/machine.h"

namespace wideep::cuda {

struct Machine::Thread {
  Machine* machine = nullptr;
  Block* block = nullptr;
  int index = 0;  // in the block
  VectorClock clock;
  Fiber fiber;
  Awaited awaits = Awaited::kNothing;
  uint32_t line = 0;         // where it waits
  bool has_awaited = false;  // the kernel's predecessor
  uint64_t stall = 0;        // in which it has polled last, and how often
  int polls = 0;
};

struct Machine::Warp {
  int num_arrived = 0;  // lanes that wait at the operation
  int num_ended = 0;
  Operation operation = Operation::kBallot;
  uint32_t line = 0;
  uint32_t generation = 0;  // number of operations done
  uint64_t values[2][kWarpSize] = {};
};

struct Machine::Block {
  void start(int threads_of_launch) {
    num_threads = threads_of_launch;
    num_ended = 0;
    lets_successor_begin = false;
    waiting.clear();
    for (Warp& warp : warps) warp = {};
    for (auto& thread : threads) {
      thread->awaits = Awaited::kNothing;
      thread->has_awaited = false;
    }
  }
  Warp& warp_of(const Thread& thread) {
    return warps[static_cast<size_t>(thread.index / kWarpSize)];
  }
  std::array<Thread*, kWarpSize> lanes_of_warp(const Thread& thread) {
    std::array<Thread*, kWarpSize> lanes;
    const auto first = static_cast<size_t>(thread.index / kWarpSize * kWarpSize);
    for (size_t i = 0; i < kWarpSize; ++i) lanes[i] = threads[first + i].get();
    return lanes;
  }

  int index = 0;
  Device* device = nullptr;
  Grid* grid = nullptr;
  std::byte* shared = nullptr;
  int num_threads = 0;  // of the launch
  int num_ended = 0;
  bool lets_successor_begin = false;
  uint32_t line = 0;             // of the barrier
  std::vector<Thread*> waiting;  // at the barrier
  std::vector<Warp> warps;
  std::vector<std::unique_ptr<Thread>> threads;
};

// Room for one launch.
struct Machine::Grid {
  bool is_running() const { return num_running > 0; }

  Device* device = nullptr;
  Launch launch;                  // the one that runs, or ran last
  int num_running = 0;            // threads
  int num_letting = 0;            // blocks that let the successor begin, or have ended
  SharedTimes clock;              // of its threads that have ended
  std::vector<Thread*> awaiting;  // threads of the successor that wait for its end
  std::vector<std::unique_ptr<Block>> blocks;
};

struct Machine::Device {
  // The launch that began last, and the one before it.
  Grid& newest() { return *grids[newest_grid]; }
  const Grid& newest() const { return *grids[newest_grid]; }
  const Grid& predecessor() const { return *grids[grids.size() - 1 - newest_grid]; }
  Grid& predecessor() { return *grids[grids.size() - 1 - newest_grid]; }

  int index = 0;
  SharedTimes clock;  // of all that its launches have done that have ended
  std::deque<Launch> stream;
  bool is_delayed = false;
  size_t newest_grid = 0;
  std::vector<std::unique_ptr<Grid>> grids;  // 1, or 2 if launches may overlap
};

}  // namespace wideep::cuda
