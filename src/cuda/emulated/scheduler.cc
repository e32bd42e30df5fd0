// SPDX-License-Identifier: Apache-2.0
//
// What machine.h declares: streams, the choice of threads, and what waits for what.
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
  for (int index = 0; index < options.num_devices; ++index) {
    auto device = std::make_unique<Device>();
    device->index = index;
    device->clock = VectorClock(num_threads);
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
          thread->id =
              static_cast<uint32_t>(first + static_cast<size_t>(b * options.max_threads + t));
          thread->clock = VectorClock(num_threads);
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
  devices_.at(static_cast<size_t>(device))->stream.push_back(std::move(launch));
}

// ---- run ----

Status Machine::run() {
  memory_.begin_run();
  failure_.clear();
  released_.clear();
  habit_ = static_cast<int>(random_() % 4);
  slow_device_ = static_cast<int>(random_() % static_cast<uint64_t>(options_.num_devices));
  note_progress();
  for (auto& device : devices_) start_next(*device);
  while (failure_.empty()) {
    start_delayed();
    if (ready_.empty()) break;
    Thread* thread = choose();
    ++num_switches_;
    num_accesses_ = 0;
    thread->fiber.enter();
    Device& device = *thread->block->device;
    if (!device.is_delayed && can_start(device)) start_next(device);
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
    return;
  }
  device.is_delayed = false;
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
    memory_.forget(block.shared, options_.shared_bytes);
    for (int t = 0; t < launch.num_threads; ++t) {
      Thread& thread = *block.threads[static_cast<size_t>(t)];
      if (launch.is_dependent) {
        thread.clock.forget_all_but(thread.id);
      } else {
        thread.clock.join(grid.device->clock);
      }
      thread.clock.tick(thread.id);
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
  if (block.num_ended == block.num_threads && !block.lets_successor_begin) ++grid.num_letting;
  grid.clock.join(thread.clock);
  if (--grid.num_running == 0) end_grid(grid);
  thread.fiber.leave();
  WIDEEP_CHECK(false);
}

void Machine::end_grid(Grid& grid) {
  Device& device = *grid.device;
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
  size_t at = random_() % size;
  const bool keeps_to_habit = random_() % 16 != 0;
  if (keeps_to_habit && habit_ == 1) at = size - 1 - random_() % std::min<size_t>(size, 2);
  if (keeps_to_habit && habit_ == 2) at = 0;
  if (keeps_to_habit && habit_ == 3 && ready_[at]->block->device->index == slow_device_) {
    at = random_() % size;
  }
  Thread* thread = ready_[at];
  if (habit_ == 2) {
    ready_.erase(ready_.begin() + static_cast<ptrdiff_t>(at));
  } else {
    std::swap(ready_[at], ready_.back());
    ready_.pop_back();
  }
  return thread;
}

void Machine::make_ready(Thread& thread) {
  thread.waits_for.clear();
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
  const auto is_delayed = [](const auto& device) { return device->is_delayed; };
  if (num_stalled_ > ready_.size() && std::ranges::none_of(devices_, is_delayed)) {
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
          if (!thread->waits_for.empty()) {
            return fmt::format("{}: waits for ever at {}", describe(*thread), thread->waits_for);
          }
        }
      }
    }
  }
  return {};
}

// ---- what lanes do ----

bool Machine::mutated(Operation operation, const std::source_location& where, Fault* fault) {
  if (records_sites_) sites_.insert({operation, where.file_name(), where.line(), where.column()});
  if (!mutation_.is_at(operation, where)) return false;
  *fault = mutation_.fault;
  return true;
}

void Machine::access(Thread& thread, const void* at, size_t num_bytes, Access kind,
                     const std::source_location& where) {
  std::string wrong = memory_.access(at, num_bytes, kind, thread.now(), thread.clock);
  if (!wrong.empty()) fail(thread, std::move(wrong), where);
  if (++num_accesses_ > options_.most_accesses) fail(thread, "a loop that does not end", where);
  if (kind == Access::kWrite || kind == Access::kAtomicWrite) note_progress();
}

void Machine::join_clocks(const std::vector<Thread*>& threads) {
  VectorClock all = threads[0]->clock;
  for (size_t i = 1; i < threads.size(); ++i) all.join(threads[i]->clock);
  for (Thread* thread : threads) {
    thread->clock = all;
    thread->clock.tick(thread->id);
  }
}

void Machine::barrier(Thread& thread, bool dropped, const std::source_location& where) {
  if (dropped) return yield(thread);
  Block& block = *thread.block;
  if (block.num_ended > 0) fail(thread, "at a barrier that ended threads never reach", where);
  block.waiting.push_back(&thread);
  note_progress();
  block.line = where.line();
  thread.waits_for = fmt::format("the barrier of line {}", where.line());
  if (static_cast<int>(block.waiting.size()) == block.num_threads) {
    join_clocks(block.waiting);
    for (Thread* waiting : block.waiting) make_ready(*waiting);
    block.waiting.clear();
  }
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
  thread.waits_for = fmt::format("the warp operation of line {}", where.line());
  if (++warp.num_arrived == kWarpSize) {
    warp.num_arrived = 0;
    ++warp.generation;
    const std::vector<Thread*> lanes = block.lanes_of_warp(thread);
    if (orders) join_clocks(lanes);
    for (Thread* lane : lanes) make_ready(*lane);
  }
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
    thread.waits_for = fmt::format("the end of the kernel before, line {}", where.line());
    note_progress();
    device.predecessor().awaiting.push_back(&thread);
    thread.fiber.leave();
    return;
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
  yield(thread);
}

void Machine::acquire(Thread& thread, const void* at, bool for_all_devices) {
  const auto found = released_.find(at);
  if (found == released_.end()) return;
  const int device = thread.block->device->index;
  for (const auto& [releasing_device, released] : found->second) {
    if (releasing_device == device || (released.for_all_devices && for_all_devices)) {
      thread.clock.join(released.clock);
    }
  }
}

void Machine::release(Thread& thread, const void* at, bool for_all_devices, bool keeps_others) {
  std::map<int, Released>& places = released_[at];
  if (!keeps_others) places.clear();
  Released& mine = places[thread.block->device->index];
  mine.for_all_devices = for_all_devices && (mine.clock.empty() || mine.for_all_devices);
  mine.clock.join(thread.clock);
  thread.clock.tick(thread.id);
}

}  // namespace wideep::cuda
