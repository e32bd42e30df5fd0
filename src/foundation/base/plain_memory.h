// SPDX-License-Identifier: Apache-2.0
//
// What algorithms that also run on GPUs read and write through on the CPU; on a GPU it is a lane
// (cuda/lane.h). Thread safety: as plain accesses.
#pragma once

namespace wideep::base {

struct PlainMemory {
  // Whether an algorithm may keep what it has read in one more local: a GPU's thread has few
  // registers, and more of them let fewer threads run.
  static constexpr bool kHasManyRegisters = true;
  template <typename T>
  static T load(const T* place) {
    return *place;
  }
  template <typename T>
  static void store(T* place, T value) {
    *place = value;
  }
};

}  // namespace wideep::base
