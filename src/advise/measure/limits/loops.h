// SPDX-License-Identifier: Apache-2.0
//
// The innermost loops that a limit is measured with, one table per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wideep::measure::limits {

struct Loops {
  bool (*supported)();  // by the processor that this runs on

  // Loads every byte. The result only keeps the compiler from removing the loads.
  // REQUIRES: data is 64-byte aligned, bytes a multiple of 1024.
  uint64_t (*read)(const std::byte* data, size_t bytes);
  // REQUIRES: as above, no overlap.
  void (*copy)(const std::byte* from, std::byte* to, size_t bytes);

  // `rounds` × operations_per_round of the operation, in registers; null: no such instruction.
  struct Arithmetic {
    uint64_t (*run)(int64_t rounds) = nullptr;
    int operations_per_round = 0;
  };
  Arithmetic f32, bf16, int8;
};

const Loops* avx512_loops();
const Loops* avx2_loops();
const Loops* portable_loops();

}  // namespace wideep::measure::limits
