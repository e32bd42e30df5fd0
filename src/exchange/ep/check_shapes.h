// SPDX-License-Identifier: Apache-2.0
//
// Checks before the first call that all ranks have the same shape. Otherwise they would read each
// other's buffers at wrong offsets.
//
// Thread safety: that of the endpoint.
#pragma once

#include "ep/buffer_layout.h"
#include "transport/endpoint.h"
#include "wideep/status.h"

namespace wideep::ep {

// Compares this rank's shape with those of all ranks of the endpoint's group. Collective.
// Errors: the first field that differs, with both values and ranks (invalid input, the same on all
// ranks); deadline_exceeded.
Status check_shapes_match(const DispatchShape& shape, transport::Endpoint& endpoint);

}  // namespace wideep::ep
