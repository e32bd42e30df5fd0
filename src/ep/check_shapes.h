// SPDX-License-Identifier: Apache-2.0
//
// Ranks whose shapes differ would read each other's buffers at wrong offsets. This finds out before
// the first call.
#pragma once

#include "ep/buffer_layout.h"
#include "transport/endpoint.h"
#include "wideep/status.h"

namespace wideep::ep {

// Compares this rank's shape with those of all ranks of the endpoint's group. Collective.
// Errors: invalid input, the same on all ranks, which names the first field that differs, both
// values and their ranks; a rank that does not come.
Status check_shapes_match(const DispatchShape& shape, transport::Endpoint& endpoint);

}  // namespace wideep::ep
