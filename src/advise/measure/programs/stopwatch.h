// SPDX-License-Identifier: Apache-2.0
//
// Times on a machine that other programs use at the same time.
#pragma once

#include <functional>
#include <vector>

namespace wideep::measure {

// Median processor seconds of each run over `rounds` rounds, after one round to warm up. Every
// round runs each of `runs` once, in order, so that a slow phase of the machine affects all
// equally. REQUIRES: runs start no threads (only this thread's time is counted).
std::vector<double> interleaved_medians(const std::vector<std::function<void()>>& runs, int rounds);

}  // namespace wideep::measure
