// SPDX-License-Identifier: Apache-2.0
//
// What a measured iteration consists of.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <vector>

#include "run/event.h"

namespace wideep::measure {

// Seconds of an iteration: of the busiest rank in every layer; where ranks take turns on cores, of
// all ranks divided by the cores.
struct IterationParts {
  double experts = 0.0;
  double dense = 0.0;     // all else that ranks compute
  double exchange = 0.0;  // waiting for other ranks, scheduling: what is left of the whole
};

IterationParts parts_of(const std::vector<engine::IterationRecord>& ranks, double seconds,
                        int cores);

// When the last rank ended.
int64_t end_of(const std::vector<engine::IterationRecord>& ranks);

// From the end of the one before to its end.
double seconds_between(const run::Iteration& before, const run::Iteration& iteration);
// Of the first one: since all ranks had begun it.
double seconds_alone(const run::Iteration& iteration);

// The value that is above a share of all, 0 to 1. REQUIRES: there are values.
double quantile(std::vector<double> values, double share);
inline double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

}  // namespace wideep::measure
