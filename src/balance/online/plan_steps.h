// SPDX-License-Identifier: Apache-2.0
//
// Divides a plan that needs more spare records than a rank has into steps, each of which ends in a
// valid placement.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/placement.h"

namespace wideep::online {

// The number of slots of each rank whose expert changes: [ep_size].
std::vector<int> changed_slots(const balance::Placement& from, std::span<const int32_t> to);

// The next placement between `from` and `to`: changes as many slots as fit, at most
// free_records[rank] of each rank. Every expert keeps a slot. Returns `from` if no step fits.
// REQUIRES: from and to are valid placements of the same shape.
std::vector<int32_t> next_step(const balance::Placement& from, std::span<const int32_t> to,
                               std::span<const int> free_records);

}  // namespace wideep::online
