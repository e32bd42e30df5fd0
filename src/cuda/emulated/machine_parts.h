// SPDX-License-Identifier: Apache-2.0
//
// The threads, warps, blocks and devices of a Machine.
//
// Thread safety: those of their machine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "cuda/emulated/machine.h"

namespace wideep::cuda {

struct Machine::Thread {
  Moment now() const { return {id, clock.of(id)}; }

  Machine* machine = nullptr;
  Block* block = nullptr;
  int index = 0;    // in the block
  uint32_t id = 0;  // in the machine
  VectorClock clock;
  Fiber fiber;
  std::string waits_for;  // empty: it does not wait
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
    waiting.clear();
    for (Warp& warp : warps) warp = {};
    for (auto& thread : threads) thread->waits_for.clear();
  }
  Warp& warp_of(const Thread& thread) {
    return warps[static_cast<size_t>(thread.index / kWarpSize)];
  }
  std::vector<Thread*> lanes_of_warp(const Thread& thread) {
    std::vector<Thread*> lanes;
    const auto first = static_cast<size_t>(thread.index / kWarpSize * kWarpSize);
    for (size_t i = 0; i < kWarpSize; ++i) lanes.push_back(threads[first + i].get());
    return lanes;
  }

  int index = 0;
  Device* device = nullptr;
  std::byte* shared = nullptr;
  int num_threads = 0;  // of the launch
  int num_ended = 0;
  uint32_t line = 0;             // of the barrier
  std::vector<Thread*> waiting;  // at the barrier
  std::vector<Warp> warps;
  std::vector<std::unique_ptr<Thread>> threads;
};

struct Machine::Device {
  int index = 0;
  VectorClock clock;  // of all that its launches have done
  std::deque<Launch> stream;
  Launch launch;  // the one that runs
  int num_running = 0;
  bool is_delayed = false;
  std::vector<std::unique_ptr<Block>> blocks;
};

}  // namespace wideep::cuda
