// SPDX-License-Identifier: Apache-2.0
//
// Kills a process of a running service at a named step of its work, to see what happens then
// (docs/faults.md). The variable WIDEEP_FAULT_DRILL says where:
//
//   WIDEEP_FAULT_DRILL=filled:3,recorded:100     when that step is passed the third time, and so on
//   WIDEEP_FAULT_DRILL=filled:3+5                5 ms later, wherever it is then
//
// Steps are counted over all processes of the service, so a process that is started again does not
// die at the same place.
//
// Thread safety: pass() from any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/shared_memory.h"
#include "wideep/status.h"

namespace wideep::transport {

class FaultDrill {
 public:
  enum class Step : uint8_t {
    // A rank: its part of the weights is read; it is a member; it has told what it holds; it knows
    // the placement; the experts are in its slots; it has agreed on an iteration; it leaves.
    kLoaded,
    kJoined,
    kHolding,
    kRegrouped,
    kFilled,
    kAgreed,
    kLeaving,
    // The front: it has read from a client; it is about to keep a token; it has kept it; it is
    // about to write to a client; a reply is complete.
    kRead,
    kRecording,
    kRecorded,
    kWriting,
    kReplied,
    kCount
  };
  static_assert(static_cast<size_t>(Step::kCount) <= std::tuple_size_v<StepCounters>);

  // Reads the variable. Errors (invalid input): it names no step, with those that there are.
  static Status prepare();
  // From now on this process counts its steps. Without the variable: no effect.
  static void begin(StepCounters& counters);

  static void pass(Step step) {
    if (counters_ != nullptr) count(step);
  }

 private:
  static void count(Step step);
  static StepCounters* counters_;
};

}  // namespace wideep::transport
