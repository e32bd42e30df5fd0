// SPDX-License-Identifier: Apache-2.0
//
// Shares that serve several windows at once, for engines that cannot compute new ones for each.
//
// The best shares for the mean load may be extreme: an expert that gives all its load to one rank
// in the mean makes that rank the hottest of a window in which the expert is hot. These shares
// lower the 8-norm of the ranks' loads over all windows, by Newton steps on one pair of replicas
// after the other. The problem is convex, so the order matters little.
//
// Thread safety: pure function.
#pragma once

#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

// windows: [window][E], finite and ≥ 0, at least one; each counts the same. The mean over windows
// of the imbalance with these shares is never above that with equal shares.
Shares shares_for_windows(std::span<const std::vector<double>> windows, const Placement& placement);

}  // namespace wideep::balance
