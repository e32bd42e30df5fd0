// SPDX-License-Identifier: Apache-2.0
//
// A plan that needs more spare records than a rank has is followed in steps, each a valid placement
// of its own.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/placement.h"

namespace wideep::online {

// Slots of each rank whose expert changes: [ep_size].
std::vector<int> changed_slots(const balance::Placement& from, std::span<const int32_t> to);

// The placement on the way from `from` to `to` that changes as many slots as fit: at most
// free_records[rank] of a rank. Every expert keeps a slot. `from` itself when no step fits.
// REQUIRES: from and to are valid placements of the same shape.
std::vector<int32_t> next_step(const balance::Placement& from, std::span<const int32_t> to,
                               std::span<const int> free_records);

}  // namespace wideep::online
