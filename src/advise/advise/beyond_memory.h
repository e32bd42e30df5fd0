// SPDX-License-Identifier: Apache-2.0
//
// Serving a model that is larger than a machine's memory: which share of its experts each node
// keeps there, and how fast that is predicted to be.
//
// For machines of cores: each node has one rank with all of its cores, which has its part of the
// experts, some of them in memory and all on a disk of the node. Prompts are not predicted.
//
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "advise/expert_reading.h"
#include "advise/hit_rate_curve.h"
#include "advise/question.h"
#include "cost/layout.h"
#include "wideep/status.h"

namespace wideep::advise {

// Where a description of hardware does not say what its disk reads: an NVMe disk of some years.
inline constexpr double kAssumedDiskBandwidth = 3e9;

// The time by the hit rate that is expected, and by its bounds.
struct ReadingForecast {
  double share = 0.0;  // of the experts in memory
  ReadingTime expected;
  ReadingTime uniform;  // as if the router chose all experts alike: the lower bound
  ReadingTime upper;    // of HitRates::upper; without one, as expected
};

// REQUIRES: as reading_time(); share is in [0, 1].
ReadingForecast forecast_reading(const IterationInMemory& iteration, const StoredExperts& stored,
                                 double share, const HitRates& rates);

struct PartlyResident {
  cost::Layout layout;
  int requests = 1;             // at the same time, over all nodes
  double dense_bytes = 0.0;     // of a node: all but the experts, with the cache of its requests
  double expert_bytes = 0.0;    // of a node: its part of the experts
  double resident_bytes = 0.0;  // of them in memory
  ReadingForecast forecast;
};

// The machine in every format of the choices (of the hardware) in which its memory does not hold the
// model, the fastest first; nothing if it does in one of them, or holds less than what is not
// experts, or is no machine of cores, or the model has no experts. Serves workload.concurrency
// requests at a time (1). Errors (invalid input): as advise().
Result<std::vector<PartlyResident>> partly_resident(const Question& question,
                                                    const HitRates& rates);

}  // namespace wideep::advise
