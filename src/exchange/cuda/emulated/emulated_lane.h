// SPDX-License-Identifier: Apache-2.0
//
// The lane of an emulated CUDA thread (lane.h says what the operations do). Every operation is
// checked and knows where in the source it stands.
//
// Thread safety: see Machine.
#pragma once

#include <bit>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "cuda/emulated/machine.h"
#include "cuda/emulated/machine_parts.h"
#include "cuda/lane.h"

namespace wideep::cuda {

class EmulatedLane {
  using Where = std::source_location;

 public:
  static constexpr bool kHasManyRegisters = false;

  EmulatedLane(Machine& machine, Machine::Thread& thread) : machine_(machine), me_(thread) {}

  int thread() const { return me_.index; }
  int num_threads() const { return me_.block->num_threads; }
  int block() const { return me_.block->index; }
  int num_blocks() const { return me_.block->grid->launch.num_blocks; }
  int lane() const { return me_.index % kWarpSize; }
  int warp() const { return me_.index / kWarpSize; }
  int num_warps() const { return num_threads() / kWarpSize; }

  template <typename T>
  T* shared() {
    return reinterpret_cast<T*>(me_.block->shared);
  }

  template <typename T>
  T load(const T* from, const Where& where = Where::current()) {
    if (fault_at(Operation::kLoad, where) == Fault::kNextPlace) ++from;
    machine_.access(me_, from, sizeof(T), Access::kRead, where);
    return *from;
  }
  Vector load_from_memory(const Vector* from, const Where& where = Where::current()) {
    return load(from, where);
  }
  template <typename T>
  void store(T* to, const std::type_identity_t<T>& value, const Where& where = Where::current()) {
    const Fault fault = fault_at(Operation::kStore, where);
    if (fault == Fault::kDropped) return;
    if (fault == Fault::kNextPlace) ++to;
    machine_.access(me_, to, sizeof(T), Access::kWrite, where);
    machine_.forget_released(to);
    *to = value;
  }

  void sync(const Where& where = Where::current()) {
    machine_.barrier(me_, fault_at(Operation::kBarrier, where) == Fault::kDropped, where);
  }
  void sync_warp(const Where& where = Where::current()) {
    if (fault_at(Operation::kWarpBarrier, where) == Fault::kDropped) return;
    machine_.exchange(me_, Operation::kWarpBarrier, 0, true, where);
  }
  template <typename T>
  T shuffle(T value, int from, const Where& where = Where::current()) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    if (fault_at(Operation::kShuffle, where) == Fault::kNextPlace) from = (from + 1) % kWarpSize;
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = machine_.exchange(me_, Operation::kShuffle, bits, false, where)[from % kWarpSize];
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
  uint32_t ballot(bool value, const Where& where = Where::current()) {
    fault_at(Operation::kBallot, where);
    const uint64_t* values = machine_.exchange(me_, Operation::kBallot, value, false, where);
    return lanes_with(values, 1);
  }
  uint32_t match(int32_t value, const Where& where = Where::current()) {
    fault_at(Operation::kMatch, where);
    const auto bits = static_cast<uint64_t>(static_cast<uint32_t>(value));
    return lanes_with(machine_.exchange(me_, Operation::kMatch, bits, false, where), bits);
  }

  uint32_t load_acquire(const uint32_t* from, const Where& where = Where::current()) {
    const Fault fault = fault_at(Operation::kAcquire, where);
    machine_.yield(me_);
    machine_.access(me_, from, sizeof(*from), Access::kAtomicRead, where);
    if (fault != Fault::kRelaxed) machine_.acquire(me_, from, fault != Fault::kOneDevice);
    return *from;
  }
  void store_release(uint32_t* to, uint32_t value, const Where& where = Where::current()) {
    const Fault fault = fault_at(Operation::kRelease, where);
    machine_.yield(me_);
    if (fault == Fault::kDropped) return;
    machine_.access(me_, to, sizeof(*to), Access::kAtomicWrite, where);
    if (fault == Fault::kRelaxed) {
      machine_.forget_released(to);
    } else {
      machine_.release(me_, to, fault != Fault::kOneDevice, false);
    }
    *to = value;
  }

  uint32_t load_relaxed(const uint32_t* from, const Where& where = Where::current()) {
    machine_.yield(me_);
    machine_.access(me_, from, sizeof(*from), Access::kAtomicRead, where);
    return *from;
  }
  void store_relaxed(uint32_t* to, uint32_t value, const Where& where = Where::current()) {
    const Fault fault = fault_at(Operation::kStore, where);
    machine_.yield(me_);
    if (fault == Fault::kDropped) return;
    if (fault == Fault::kNextPlace) ++to;
    machine_.access(me_, to, sizeof(*to), Access::kAtomicWrite, where);
    machine_.forget_released(to);
    *to = value;
  }
  uint32_t atomic_add(uint32_t* at, uint32_t value, const Where& where = Where::current()) {
    const uint32_t before = begin_atomic(at, where);
    if (fault_at(Operation::kAtomic, where) != Fault::kDropped) *at = before + value;
    return before;
  }
  uint32_t atomic_or(uint32_t* at, uint32_t value, const Where& where = Where::current()) {
    const uint32_t before = begin_atomic(at, where);
    if (fault_at(Operation::kAtomic, where) != Fault::kDropped) *at = before | value;
    return before;
  }
  uint32_t compare_exchange(uint32_t* at, uint32_t expected, uint32_t value,
                            const Where& where = Where::current()) {
    const uint32_t before = begin_atomic(at, where);
    if (before == expected) *at = value;
    return before;
  }
  uint32_t atomic_add_acq_rel(uint32_t* at, uint32_t value, const Where& where = Where::current()) {
    const Fault fault = fault_at(Operation::kAtomicAcqRel, where);
    const uint32_t before = begin_atomic(at, where);
    if (fault != Fault::kRelaxed) {
      machine_.acquire(me_, at, fault != Fault::kOneDevice);
      machine_.release(me_, at, fault != Fault::kOneDevice, true);
    }
    *at = before + value;
    return before;
  }

  uint64_t now_ns() { return machine_.now_ns_; }
  void pause() { machine_.pause(me_); }
  void await_predecessor(const Where& where = Where::current()) {
    if (fault_at(Operation::kAwaitPredecessor, where) == Fault::kDropped) return;
    machine_.await_predecessor(me_, where);
  }
  void let_successor_begin(const Where& where = Where::current()) {
    machine_.let_successor_begin(me_, where);
  }

 private:
  Fault fault_at(Operation operation, const Where& where) {
    return machine_.fault_at(operation, where);
  }
  // Switches first, so that others may come between a thread's load and its atomic access.
  uint32_t begin_atomic(uint32_t* at, const Where& where) {
    machine_.yield(me_);
    machine_.access(me_, at, sizeof(*at), Access::kAtomicRead, where);
    machine_.access(me_, at, sizeof(*at), Access::kAtomicWrite, where);
    return *at;
  }
  static uint32_t lanes_with(const uint64_t* values, uint64_t wanted) {
    uint32_t lanes = 0;
    for (int i = 0; i < kWarpSize; ++i) lanes |= values[i] == wanted ? 1u << i : 0u;
    return lanes;
  }

  Machine& machine_;
  Machine::Thread& me_;
};

static_assert(KernelLane<EmulatedLane>);

}  // namespace wideep::cuda
