// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "online/online_rank.h"

namespace wideep::tools {

// Logs one line for a rebalance: how many experts moved, and the imbalance before and after.
void log_rebalance(const online::Rebalance& each);

}  // namespace wideep::tools
