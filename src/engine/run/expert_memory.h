// SPDX-License-Identifier: Apache-2.0
//
// Memory of each rank for its experts, where it is less than all of them need
// (model/parts/resident_experts.h).
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "wideep/status.h"

namespace wideep::run {

struct ExpertMemory {
  uint64_t bytes = 0;
  std::optional<double> share;  // of what all experts need, in place of bytes

  uint64_t of(uint64_t all) const {
    return share ? static_cast<uint64_t>(*share * static_cast<double>(all)) : bytes;
  }
};

// "12G" as base::parse_byte_size, or "50%". Errors (invalid input): anything else; no share from 0
// to 100 %.
Result<ExpertMemory> parse_expert_memory(std::string_view text);

}  // namespace wideep::run
