// SPDX-License-Identifier: Apache-2.0
//
// A placement for the kernel choose_by_counts.h, uploaded to a rank's device.
//
// Thread safety: that of its devices.
#pragma once

#include "cuda/devices.h"
#include "wideep/placement.h"

namespace wideep::cuda {

// ranks_per_node: replicas on the own node are preferred; divides ep_size. Errors (invalid input):
// a placement that is not valid or of another shape; more than fits a block's shared memory;
// failed: not enough memory.
Result<CountedReplicas> upload_replicas(Devices& devices, int rank, const ExchangeShape& shape,
                                        const balance::Placement& placement, int ranks_per_node);

}  // namespace wideep::cuda
