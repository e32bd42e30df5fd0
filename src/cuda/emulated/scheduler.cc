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
  const size_t num_threads = threads_of_device * static_cast<size_t>(options.num_devices);
  WIDEEP_CHECK_LT(num_threads, size_t{65536});
  for (int index = 0; index < options.num_devices; ++index) {
    auto device = std::make_unique<Device>();
    device->index = index;
    device->clock = VectorClock(num_threads);
    for (int b = 0; b < options.max_blocks; ++b) {
      auto block = std::make_unique<Block>();
      block->index = b;
      block->device = device.get();
      block->shared = memory_.allocate(options.shared_bytes);
      block->warps.resize(static_cast<size_t>(options.max_threads / kWarpSize));
      for (int t = 0; t < options.max_threads; ++t) {
        auto thread = std::make_unique<Thread>();
        thread->machine = this;
        thread->block = block.get();
        thread->index = t;
        thread->id = static_cast<uint32_t>(static_cast<size_t>(index) * threads_of_device +
                                           static_cast<size_t>(b * options.max_threads + t));
        thread->clock = VectorClock(num_threads);
        block->threads.push_back(std::move(thread));
      }
      device->blocks.push_back(std::move(block));
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
    thread->fiber.enter();
    Device& device = *thread->block->device;
    if (device.num_running == 0 && !device.is_delayed) start_next(device);
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
    device->num_running = 0;
    device->is_delayed = false;
  }
}

// Starts the next launch of a stream, if there is one, or its delay.
void Machine::start_next(Device& device) {
  if (device.stream.empty()) return;
  if (device.stream.front().delay > 0) {
    device.is_delayed = true;
    return;
  }
  device.is_delayed = false;
  device.launch = std::move(device.stream.front());
  device.stream.pop_front();
  device.num_running = device.launch.num_blocks * device.launch.num_threads;
  for (int b = 0; b < device.launch.num_blocks; ++b) {
    Block& block = *device.blocks[static_cast<size_t>(b)];
    block.start(device.launch.num_threads);
    memory_.forget(block.shared, options_.shared_bytes);
    for (int t = 0; t < device.launch.num_threads; ++t) {
      Thread& thread = *block.threads[static_cast<size_t>(t)];
      thread.clock.join(device.clock);
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
  thread.block->device->launch.kernel(lane);
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
  ++block.num_ended;
  note_progress();
  ++warp.num_ended;
  Device& device = *block.device;
  device.clock.join(thread.clock);
  --device.num_running;
  thread.fiber.leave();
  WIDEEP_CHECK(false);
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

void Machine::pause(Thread& thread) {
  if (++stalled_ > 8 * ready_.size() + 64) {
    stalled_ = 0;
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
  return fmt::format("kernel {}, rank {}, block {}, thread {}", thread.block->device->launch.name,
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
    if (device->num_running == 0) continue;
    for (const auto& block : device->blocks) {
      for (const auto& thread : block->threads) {
        if (!thread->waits_for.empty()) {
          return fmt::format("{}: waits for ever at {}", describe(*thread), thread->waits_for);
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
  block.line = where.line();
  thread.waits_for = fmt::format("the barrier of line {}", where.line());
  if (static_cast<int>(block.waiting.size()) == block.num_threads) {
    join_clocks(block.waiting);
    for (Thread* waiting : block.waiting) make_ready(*waiting);
    block.waiting.clear();
    note_progress();
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
    note_progress();
  }
  thread.fiber.leave();
  return values;
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
