// SPDX-License-Identifier: Apache-2.0
//
// What machine.h declares: streams, the choice of threads, and what waits for what.
//
// One CUDA thread runs at a time, until it leaves its fiber at an operation that others can
// observe; then another one is drawn by the seed. Drawing evenly alone would hardly ever let one
// thread run far ahead or one device fall far behind, where most errors are, so each run also has
// a habit. Time passes only when every thread that can run polls and nothing happens; so deadlines
// are met without waiting, and a wait for what never comes is found. What happened before what is
// kept as vector clocks, which barriers, warp operations, and releases with their acquires join.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "cuda/emulated/emulated_lane.h"
#include "cuda/emulated/machine.h"
#include "cuda/emulated/machine_parts.h"

namespace wideep::cuda {
namespace {

// Nobody waits that long on purpose.
constexpr uint64_t kHangNs = uint64_t{3600} * 1'000'000'000;

std::string file_of(const std::source_location& where) {
  const std::string path = where.file_name();
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

Machine::Machine(const MachineOptions& options)
    : options_(options), memory_(options.memory_bytes), random_(options.seed) {
  WIDEEP_CHECK_EQ(options.max_threads % kWarpSize, 0);
  const auto threads_of_device = static_cast<size_t>(options.max_blocks * options.max_threads);
  const size_t grids = options.overlaps_launches ? 2 : 1;
  const size_t num_threads = threads_of_device * grids * static_cast<size_t>(options.num_devices);
  WIDEEP_CHECK_LT(num_threads, size_t{65536});
  nothing_ = SharedTimes(num_threads);
  for (int index = 0; index < options.num_devices; ++index) {
    auto device = std::make_unique<Device>();
    device->index = index;
    device->clock = nothing_;
    for (size_t g = 0; g < grids; ++g) {
      auto grid = std::make_unique<Grid>();
      grid->device = device.get();
      const size_t first = (static_cast<size_t>(index) * grids + g) * threads_of_device;
      for (int b = 0; b < options.max_blocks; ++b) {
        auto block = std::make_unique<Block>();
        block->index = b;
        block->device = device.get();
        block->grid = grid.get();
        block->shared = memory_.allocate(options.shared_bytes);
        block->warps.resize(static_cast<size_t>(options.max_threads / kWarpSize));
        for (int t = 0; t < options.max_threads; ++t) {
          auto thread = std::make_unique<Thread>();
          thread->machine = this;
          thread->block = block.get();
          thread->index = t;
          const size_t id = first + static_cast<size_t>(b * options.max_threads + t);
          thread->clock = VectorClock(static_cast<uint32_t>(id), nothing_);
          block->threads.push_back(std::move(thread));
        }
        grid->blocks.push_back(std::move(block));
      }
      device->grids.push_back(std::move(grid));
    }
    devices_.push_back(std::move(device));
  }
}

Machine::~Machine() = default;

void Machine::launch(int device, Launch launch) {
  WIDEEP_CHECK_LE(launch.num_blocks, options_.max_blocks);
  WIDEEP_CHECK_LE(launch.num_threads, options_.max_threads);
  WIDEEP_CHECK_EQ(launch.num_threads % kWarpSize, 0);
  WIDEEP_CHECK_LE(launch.shared_bytes, options_.shared_bytes);
  devices_.at(static_cast<size_t>(device))->stream.push_back(std::move(launch));
}

// ---- run ----

Status Machine::run() {
  memory_.begin_run();
  failure_.clear();
  released_.clear();
  may_be_released_.reset();
  num_delayed_ = 0;
  habit_ = static_cast<int>(random_() % 4);
  slow_device_ = static_cast<int>(random_() % static_cast<uint64_t>(options_.num_devices));
  note_progress();
  for (auto& device : devices_) start_next(*device);
  while (failure_.empty()) {
    if (num_delayed_ > 0) start_delayed();
    if (ready_.empty()) break;
    Thread* thread = choose();
    ++num_switches_;
    num_accesses_ = 0;
    thread->fiber.enter();
    if (std::exchange(may_start_, false)) start_launches();
  }
  if (failure_.empty()) failure_ = describe_waiting();
  if (failure_.empty()) return {};
  reset();
  return failed(std::exchange(failure_, {}));
}

void Machine::reset() {
  ready_.clear();
  for (auto& device : devices_) {
    device->stream.clear();
    for (auto& grid : device->grids) {
      grid->num_running = 0;
      grid->awaiting.clear();
    }
    device->is_delayed = false;
  }
}

void Machine::start_launches() {
  for (auto& device : devices_) {
    if (!device->is_delayed && can_start(*device)) start_next(*device);
  }
}

// Whether the stream's next launch may begin, as far as the earlier ones are concerned.
bool Machine::can_start(const Device& device) const {
  const Grid& last = device.newest();
  if (!last.is_running()) return true;
  return device.grids.size() == 2 && !device.predecessor().is_running() && !device.stream.empty() &&
         device.stream.front().is_dependent && last.num_letting == last.launch.num_blocks;
}

// Starts the next launch of a stream, if there is one, or its delay.
void Machine::start_next(Device& device) {
  if (device.stream.empty()) return;
  if (device.stream.front().delay > 0) {
    device.is_delayed = true;
    ++num_delayed_;
    return;
  }
  if (device.newest().is_running()) ++num_overlaps_;
  device.newest_grid = device.grids.size() - 1 - device.newest_grid;
  Grid& grid = device.newest();
  grid.launch = std::move(device.stream.front());
  device.stream.pop_front();
  start_grid(grid);
}

void Machine::start_grid(Grid& grid) {
  const Launch& launch = grid.launch;
  grid.num_running = launch.num_blocks * launch.num_threads;
  grid.num_letting = 0;
  for (int b = 0; b < launch.num_blocks; ++b) {
    Block& block = *grid.blocks[static_cast<size_t>(b)];
    block.start(launch.num_threads);
    memory_.reallocate(block.shared, launch.shared_bytes, options_.shared_bytes);
    for (int t = 0; t < launch.num_threads; ++t) {
      Thread& thread = *block.threads[static_cast<size_t>(t)];
      if (launch.is_dependent) {
        thread.clock.set_known(nothing_);
      } else {
        thread.clock.join(grid.device->clock);
      }
      thread.clock.tick();
      thread.fiber.start(&Machine::run_thread, &thread);
      make_ready(thread);
    }
  }
}

void Machine::start_delayed() {
  for (auto& device : devices_) {
    if (!device->is_delayed) continue;
    int& delay = device->stream.front().delay;
    --delay;
    if (ready_.empty()) delay = 0;
    if (delay <= 0) {
      note_progress();
      device->is_delayed = false;
      --num_delayed_;
      start_next(*device);
    }
  }
}

void Machine::run_thread(void* argument) {
  auto& thread = *static_cast<Thread*>(argument);
  EmulatedLane lane(*thread.machine, thread);
  thread.block->grid->launch.kernel(lane);
  thread.machine->end_thread(thread);
}

// A thread that ends while others wait for it at a barrier leaves them there for ever.
void Machine::end_thread(Thread& thread) {
  Block& block = *thread.block;
  Warp& warp = block.warp_of(thread);
  const auto where = std::source_location::current();
  if (warp.num_arrived > 0) {
    fail(thread, fmt::format("has ended while lanes of its warp wait at line {}", warp.line),
         where);
  }
  if (!block.waiting.empty()) {
    fail(thread, fmt::format("has ended while its block waits at line {}", block.line), where);
  }
  Grid& grid = *block.grid;
  if (grid.launch.is_dependent && !thread.has_awaited) {
    fail(thread, "has ended without having awaited the kernel before", where);
  }
  ++block.num_ended;
  note_progress();
  ++warp.num_ended;
  if (block.num_ended == block.num_threads && !block.lets_successor_begin) {
    ++grid.num_letting;
    may_start_ = true;
  }
  grid.clock.join(thread.clock.known());
  grid.clock.raise(thread.clock.now());
  if (--grid.num_running == 0) end_grid(grid);
}

void Machine::end_grid(Grid& grid) {
  Device& device = *grid.device;
  may_start_ = true;
  device.clock.join(grid.clock);
  for (Thread* thread : grid.awaiting) {
    thread->clock.join(device.clock);
    make_ready(*thread);
  }
  grid.awaiting.clear();
}

// The habits: any thread; mostly the one that became ready last; mostly the one that did first;
// any, but one device seldom.
Machine::Thread* Machine::choose() {
  const size_t size = ready_.size();
  const uint64_t drawn = random_();
  const auto any_of = [](uint64_t bits, size_t max) {  // by the upper of 32 bits
    return static_cast<size_t>((bits & 0xffffffffu) * max >> 32);
  };
  const bool keeps_to_habit = drawn % 16 != 0;
  size_t at = any_of(drawn >> 32, size);
  if (keeps_to_habit && habit_ == 1) at = size - 1 - any_of(drawn, std::min<size_t>(size, 2));
  if (keeps_to_habit && habit_ == 2) return ready_.take_oldest();
  if (keeps_to_habit && habit_ == 3 && ready_[at]->block->device->index == slow_device_) {
    at = any_of(drawn, size);
  }
  return ready_.take(at);
}

void Machine::make_ready(Thread& thread) {
  thread.awaits = Awaited::kNothing;
  ready_.push_back(&thread);
}

void Machine::yield(Thread& thread) {
  make_ready(thread);
  thread.fiber.leave();
}

// Time grows when every thread that can run has polled, twice, since anything happened: the first
// poll may have looked before that.
void Machine::pause(Thread& thread) {
  if (thread.stall != stall_) {
    thread.stall = stall_;
    thread.polls = 0;
  }
  if (++thread.polls == 2) ++num_stalled_;
  if (num_stalled_ > ready_.size() && num_delayed_ == 0) {
    ++stall_;
    num_stalled_ = 0;
    now_ns_ += time_step_ns_;
    time_step_ns_ *= 2;
  }
  if (time_step_ns_ > kHangNs) {
    fail(thread, "polls for what will never come", std::source_location::current());
  }
  yield(thread);
}

// ---- errors ----

std::string Machine::describe(const Thread& thread) const {
  return fmt::format("kernel {}, rank {}, block {}, thread {}", thread.block->grid->launch.name,
                     thread.block->device->index, thread.block->index, thread.index);
}

void Machine::fail(Thread& thread, std::string what, const std::source_location& where) {
  {
    // The fiber never returns to where `what` would be destroyed.
    const std::string owned = std::move(what);
    if (failure_.empty()) {
      failure_ =
          fmt::format("{}: {} ({}:{})", describe(thread), owned, file_of(where), where.line());
    }
  }
  for (;;) thread.fiber.leave();
}

// The threads that wait for others when nothing is left to run; empty: none.
std::string Machine::describe_waiting() const {
  for (const auto& device : devices_) {
    for (const auto& grid : device->grids) {
      if (!grid->is_running()) continue;
      for (const auto& block : grid->blocks) {
        for (const auto& thread : block->threads) {
          if (thread->awaits == Awaited::kNothing) continue;
          constexpr const char* kNames[] = {"nothing", "the barrier", "the warp operation",
                                            "the end of the kernel before,"};
          return fmt::format("{}: waits for ever at {} of line {}", describe(*thread),
                             kNames[static_cast<size_t>(thread->awaits)], thread->line);
        }
      }
    }
  }
  return {};
}

// ---- what lanes do ----

void Machine::note_site(Operation operation, const std::source_location& where) {
  sites_.insert({operation, where.file_name(), where.line(), where.column()});
}

void Machine::access(Thread& thread, const void* at, size_t num_bytes, Access kind,
                     const std::source_location& where) {
  if (!memory_.access(at, num_bytes, kind, thread.clock)) fail(thread, memory_.wrong(), where);
  if (++num_accesses_ > options_.max_accesses) fail(thread, "a loop that does not end", where);
  if (kind == Access::kWrite || kind == Access::kAtomicWrite) note_progress();
}

void Machine::join_clocks(std::span<Thread* const> threads) {
  SharedTimes all = threads[0]->clock.known();
  for (const Thread* thread : threads) all.join(thread->clock.known());
  for (const Thread* thread : threads) all.raise(thread->clock.now());
  for (Thread* thread : threads) {
    thread->clock.set_known(all);
    thread->clock.tick();
  }
}

void Machine::wait(Thread& thread, Awaited what, const std::source_location& where) {
  thread.awaits = what;
  thread.line = where.line();
  thread.fiber.leave();
}

void Machine::barrier(Thread& thread, bool dropped, const std::source_location& where) {
  if (dropped) return yield(thread);
  Block& block = *thread.block;
  if (block.num_ended > 0) fail(thread, "at a barrier that ended threads never reach", where);
  block.waiting.push_back(&thread);
  note_progress();
  block.line = where.line();
  if (static_cast<int>(block.waiting.size()) < block.num_threads) {
    return wait(thread, Awaited::kBarrier, where);
  }
  join_clocks(block.waiting);
  for (Thread* waiting : block.waiting) make_ready(*waiting);
  block.waiting.clear();
  thread.fiber.leave();
}

const uint64_t* Machine::exchange(Thread& thread, Operation operation, uint64_t value, bool orders,
                                  const std::source_location& where) {
  Block& block = *thread.block;
  Warp& warp = block.warp_of(thread);
  if (warp.num_ended > 0) {
    fail(thread, "at a warp operation that ended lanes never reach", where);
  }
  if (warp.num_arrived > 0 && (warp.line != where.line() || warp.operation != operation)) {
    fail(thread, fmt::format("at a warp operation while other lanes are at line {}", warp.line),
         where);
  }
  note_progress();
  warp.line = where.line();
  warp.operation = operation;
  // A lane may bring its next value while others have not taken the results of this operation: so
  // there are two sets in turn.
  uint64_t* values = warp.values[warp.generation & 1];
  values[thread.index % kWarpSize] = value;
  if (++warp.num_arrived < kWarpSize) {
    wait(thread, Awaited::kWarpOperation, where);
    return values;
  }
  warp.num_arrived = 0;
  ++warp.generation;
  const auto lanes = block.lanes_of_warp(thread);
  if (orders) join_clocks(lanes);
  for (Thread* lane : lanes) make_ready(*lane);
  thread.fiber.leave();
  return values;
}

void Machine::await_predecessor(Thread& thread, const std::source_location& where) {
  Grid& grid = *thread.block->grid;
  thread.has_awaited = true;
  if (!grid.launch.is_dependent) return;
  Device& device = *grid.device;
  // Only the newest launch can have a predecessor that still runs: there are two at most.
  if (device.grids.size() == 2 && &grid == &device.newest() && device.predecessor().is_running()) {
    note_progress();
    device.predecessor().awaiting.push_back(&thread);
    return wait(thread, Awaited::kPredecessor, where);
  }
  thread.clock.join(device.clock);
}

void Machine::let_successor_begin(Thread& thread, const std::source_location& where) {
  Block& block = *thread.block;
  if (block.grid->launch.is_dependent && !thread.has_awaited) {
    fail(thread, "lets the next kernel begin without having awaited the one before", where);
  }
  if (block.lets_successor_begin) return;
  block.lets_successor_begin = true;
  ++block.grid->num_letting;
  may_start_ = true;
  yield(thread);
}

void Machine::acquire(Thread& thread, const void* at, bool for_all_devices) {
  if (!may_be_released_[released_index(at)]) return;
  const auto found = released_.find(at);
  if (found == released_.end()) return;
  const int device = thread.block->device->index;
  for (const Released& released : found->second) {
    if (released.device == device || (released.for_all_devices && for_all_devices)) {
      thread.clock.join(released.clock);
    }
  }
}

void Machine::release(Thread& thread, const void* at, bool for_all_devices, bool keeps_others) {
  may_be_released_.set(released_index(at));
  std::vector<Released>& places = released_[at];
  if (!keeps_others) places.clear();
  const int device = thread.block->device->index;
  const auto mine = std::ranges::find(places, device, &Released::device);
  if (mine == places.end()) {
    places.push_back({device, thread.clock, for_all_devices});
  } else {
    mine->for_all_devices = for_all_devices && mine->for_all_devices;
    mine->clock.join(thread.clock);
  }
  thread.clock.tick();
}

}  // namespace wideep::cuda
