// SPDX-License-Identifier: Apache-2.0
#include "advise/expert_reading.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace wideep::advise {
namespace {

// ln(share^times); a sum of such does not overflow, as the ways to choose from 1,030 experts do.
double logs_of(double share, int times) { return times == 0 ? 0.0 : times * std::log(share); }

// The mean of a layer's time over how many experts the node misses that misses most.
double mean_layer_seconds(const IterationInMemory& iteration, const StoredExperts& stored,
                          double hit_rate) {
  const int experts = (stored.num_experts + stored.nodes - 1) / stored.nodes;     // of a node
  const double missed = iteration.reads / stored.num_experts * (1.0 - hit_rate);  // of one expert
  const double computing = iteration.experts / stored.num_layers;
  const double last = computing / std::max(1.0, iteration.reads / stored.nodes);
  const double record = stored.record_bytes / stored.disk_bandwidth;
  double mean = 0.0, at_most = 0.0, none_more = 0.0;
  for (int m = 0; m <= experts; ++m) {
    const double ways =
        std::lgamma(experts + 1.0) - std::lgamma(m + 1.0) - std::lgamma(experts - m + 1.0);
    at_most += std::exp(ways + logs_of(missed, m) + logs_of(1.0 - missed, experts - m));
    const double of_all = std::pow(std::min(at_most, 1.0), stored.nodes);
    const double seconds = m == 0 ? computing : std::max(computing, m * record + last);
    mean += (of_all - none_more) * seconds;
    none_more = of_all;
  }
  return mean;
}

}  // namespace

ReadingTime reading_time(const IterationInMemory& iteration, const StoredExperts& stored,
                         double hit_rate) {
  WIDEEP_CHECK(stored.nodes > 0 && stored.record_bytes > 0.0 && stored.disk_bandwidth > 0.0);
  WIDEEP_CHECK(hit_rate >= 0.0 && hit_rate <= 1.0);
  const double all_bytes = stored.num_layers * iteration.reads * stored.record_bytes;
  const double disk_bytes = all_bytes * (1.0 - hit_rate);
  return {.hit_rate = hit_rate,
          .memory_bytes = (iteration.dense_bytes + all_bytes - disk_bytes) / iteration.tokens,
          .disk_bytes = disk_bytes / iteration.tokens,
          .computing = iteration.experts + iteration.rest,
          .reading = disk_bytes / (stored.disk_bandwidth * stored.nodes),
          .seconds =
              stored.num_layers * mean_layer_seconds(iteration, stored, hit_rate) + iteration.rest,
          .tokens = iteration.tokens};
}

}  // namespace wideep::advise
