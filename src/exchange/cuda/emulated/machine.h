// SPDX-License-Identifier: Apache-2.0
//
// Several emulated devices, one per rank: each has a stream of kernel launches, which run one after
// the other on that device and at the same time as those of the others. Every CUDA thread is a
// fiber; all blocks of a launch are resident. A dependent launch (Launch::is_dependent) may begin
// while the one before it still runs, if that allows it; a thread of it knows nothing that earlier
// kernels have done until it has awaited them, so that whatever it touches too early is a race.
//
// The scheduler is adversarial: from a seed it chooses which thread continues at every barrier,
// warp operation, atomic access and poll. Besides what CheckedMemory finds, these end a run with an
// error that names the kernel, rank, block, thread and line: a barrier or warp operation that not
// all threads reach, threads that wait for each other, polling that nothing will ever end, a
// dependent launch that ends, or calls its successor, without having awaited its predecessor, and a
// thread that does not come to its next switch.
//
// Time is virtual. It stands still as long as any thread makes progress, and grows when all that is
// left to run is polling: so a deadline passes if and only if nothing else could happen.
//
// What it cannot show: the order of weak memory beyond races, and time.
//
// Thread safety: one thread.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/emulated/checked_memory.h"
#include "cuda/emulated/clocks.h"
#include "cuda/emulated/fiber.h"
#include "cuda/emulated/mutation.h"
#include "cuda/emulated/ready_queue.h"
#include "cuda/lane.h"
#include "wideep/status.h"

namespace wideep::cuda {

class EmulatedLane;

struct MachineOptions {
  int num_devices = 1;
  int max_blocks = 1;    // of a launch
  int max_threads = 32;  // of a block
  size_t memory_bytes = size_t{32} << 20;
  size_t shared_bytes = size_t{48} << 10;  // most of a block
  uint64_t max_accesses = 5'000'000;       // of a thread without a switch: more never end
  uint64_t seed = 1;
  bool overlaps_launches = false;  // dependent launches begin as early as they may
};

struct Launch {
  const char* name = "";
  int num_blocks = 1;
  int num_threads = 32;  // of a block
  std::function<void(EmulatedLane&)> kernel;
  int delay = 0;  // so many choices of the scheduler pass before it starts
  bool is_dependent = false;
  size_t shared_bytes = size_t{48} << 10;  // of a block
};

class Machine {
 public:
  explicit Machine(const MachineOptions& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  CheckedMemory& memory() { return memory_; }
  // Appends to a device's stream.
  void launch(int device, Launch launch);
  // Runs all streams to their ends. Errors (failed): what a kernel did wrong; the streams are then
  // empty, and the machine can be used again.
  Status run();

  void set_mutation(const Mutation& mutation) { mutation_ = mutation; }
  // All operations of kernels that have run since; for the tests of mutations.
  void record_sites(bool on) { records_sites_ = on; }
  const std::set<Site>& sites() const { return sites_; }
  uint64_t num_switches() const { return num_switches_; }
  // Dependent launches that began before their predecessors ended.
  uint64_t num_overlaps() const { return num_overlaps_; }

 private:
  friend class EmulatedLane;
  struct Thread;
  struct Warp;
  struct Block;
  struct Grid;
  struct Device;
  // What a thread finds at an address that the threads of a device have released.
  struct Released {
    int device = 0;
    VectorClock clock;
    bool for_all_devices = false;
  };
  // What a thread waits for, if it does not run and is not ready.
  enum class Awaited : uint8_t { kNothing, kBarrier, kWarpOperation, kPredecessor };

  // ---- called by lanes ----
  Fault fault_at(Operation operation, const std::source_location& where) {
    if (records_sites_) note_site(operation, where);
    return mutation_.is_at(operation, where) ? mutation_.fault : Fault::kNone;
  }
  void note_site(Operation operation, const std::source_location& where);
  void access(Thread& thread, const void* at, size_t num_bytes, Access kind,
              const std::source_location& where);
  void barrier(Thread& thread, bool dropped, const std::source_location& where);
  // All lanes of the warp bring a value; the values of all, by lane.
  const uint64_t* exchange(Thread& thread, Operation operation, uint64_t value, bool orders,
                           const std::source_location& where);
  void acquire(Thread& thread, const void* at, bool for_all_devices);
  void release(Thread& thread, const void* at, bool for_all_devices, bool keeps_others);
  void forget_released(const void* at) {
    if (may_be_released_[released_index(at)]) released_.erase(at);
  }
  void yield(Thread& thread);
  void pause(Thread& thread);
  void await_predecessor(Thread& thread, const std::source_location& where);
  void let_successor_begin(Thread& thread, const std::source_location& where);
  void note_progress() {
    ++stall_;
    num_stalled_ = 0;
    time_step_ns_ = kFirstStepNs;
  }
  void wait(Thread& thread, Awaited what, const std::source_location& where);
  [[noreturn]] void fail(Thread& thread, std::string what, const std::source_location& where);

  // ---- the scheduler ----
  static void run_thread(void* thread);
  void end_thread(Thread& thread);
  void end_grid(Grid& grid);
  bool can_start(const Device& device) const;
  void start_launches();
  void start_next(Device& device);
  void start_grid(Grid& grid);
  void start_delayed();
  Thread* choose();
  void make_ready(Thread& thread);
  void join_clocks(std::span<Thread* const> threads);
  std::string describe(const Thread& thread) const;
  std::string describe_waiting() const;
  void reset();

  static constexpr uint64_t kFirstStepNs = 1'000'000;
  static constexpr size_t kReleasedBits = 4096;
  static size_t released_index(const void* at) {
    return reinterpret_cast<uintptr_t>(at) / sizeof(uint32_t) % kReleasedBits;
  }

  MachineOptions options_;
  CheckedMemory memory_;
  std::mt19937_64 random_;
  Mutation mutation_;
  bool records_sites_ = false;
  std::set<Site> sites_;
  SharedTimes nothing_;  // what a thread knows that knows nothing
  std::vector<std::unique_ptr<Device>> devices_;
  ReadyQueue<Thread*> ready_;
  std::unordered_map<const void*, std::vector<Released>> released_;
  std::bitset<kReleasedBits> may_be_released_;  // by released_index
  std::string failure_;
  int habit_ = 0;           // of the scheduler, in this run
  int slow_device_ = 0;     // which the habit may choose seldom
  int num_delayed_ = 0;     // devices whose next launch is
  bool may_start_ = false;  // since the last look, a launch has come as far as that the next may
  uint64_t num_switches_ = 0;
  uint64_t num_overlaps_ = 0;
  uint64_t num_accesses_ = 0;  // since the last switch
  uint64_t now_ns_ = 1;
  uint64_t time_step_ns_ = kFirstStepNs;
  uint64_t stall_ = 1;      // number of times that anything happened or time grew
  size_t num_stalled_ = 0;  // threads that have only polled since
};

}  // namespace wideep::cuda
