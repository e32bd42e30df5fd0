// SPDX-License-Identifier: Apache-2.0
//
// Times on a machine that others use too.
#pragma once

#include <functional>
#include <vector>

namespace wideep::measure {

// Median processor seconds of each run (of one thread) over `rounds` rounds. Every round runs all
// of them once, in order, so that what slows the machine down for a while slows all alike. A
// warming round comes first. Runs must not start threads.
std::vector<double> interleaved_medians(const std::vector<std::function<void()>>& runs, int rounds);

}  // namespace wideep::measure
