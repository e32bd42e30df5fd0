// SPDX-License-Identifier: Apache-2.0
//
// Fits the constants of a formula to measurements: the mean of |ln(predicted / measured)| becomes
// smallest. So an error of a factor counts the same at a microsecond and at a second, and single
// bad measurements count little. Constants stay positive, since their logarithms are varied
// (Nelder and Mead, The Computer Journal 7 (1965) 308).
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace wideep::cost {

// start: [constants] all > 0. mean_error: of given constants. Deterministic.
std::vector<double> fit_constants(std::vector<double> start,
                                  const std::function<double(std::span<const double>)>& mean_error);

// |ln(predicted / measured)|, the mean over all. REQUIRES: as many of both; all > 0.
double mean_log_error(std::span<const double> predicted, std::span<const double> measured);

// |predicted / measured − 1| in ascending order.
std::vector<double> relative_errors(std::span<const double> predicted,
                                    std::span<const double> measured);

}  // namespace wideep::cost
