// SPDX-License-Identifier: Apache-2.0
//
// How much re-splits work, without a clock: for whoever plans within a time and must find the same
// plan on every machine.
#pragma once

#include <cstdint>

namespace wideep::balance {

// Steps that all Resplitters of the calling thread have made since it began: visits of slots and of
// links between experts and ranks, which take one to two nanoseconds each. Depends on the
// placements and loads only, so differences of it are the same everywhere.
int64_t resplit_steps();

}  // namespace wideep::balance
