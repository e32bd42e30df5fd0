// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "online/online_rank.h"

namespace wideep::tools {

// A line of the log for each time that experts have moved.
void log_rebalance(const online::Rebalance& each);

}  // namespace wideep::tools
