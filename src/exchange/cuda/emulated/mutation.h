// SPDX-License-Identifier: Apache-2.0
//
// Seeded faults: one operation of a kernel, at one place of its source, does less than it should.
// The tests go through all places and see that each fault is found. Kernels know nothing of it.
//
// Thread safety: plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <source_location>
#include <string>

namespace wideep::cuda {

enum class Operation : uint8_t {
  kBarrier,
  kWarpBarrier,
  kLoad,
  kStore,
  kAcquire,
  kRelease,
  kAtomic,
  kAtomicAcqRel,
  kShuffle,
  kBallot,
  kMatch,
  kAwaitPredecessor
};

// A place in a kernel's source where it does something.
struct Site {
  Operation operation = Operation::kLoad;
  std::string file;
  uint32_t line = 0, column = 0;

  auto operator<=>(const Site&) const = default;
};

enum class Fault : uint8_t {
  kNone,
  kDropped,    // it is not done
  kRelaxed,    // it orders nothing
  kOneDevice,  // it orders on this device only
  kNextPlace   // it is done at the element behind, or with the lane behind
};

struct Mutation {
  Fault fault = Fault::kNone;
  Site site;

  bool is_at(Operation operation, const std::source_location& where) const {
    return fault != Fault::kNone && site.line == where.line() && site.column == where.column() &&
           site.operation == operation && site.file == where.file_name();
  }
};

}  // namespace wideep::cuda
