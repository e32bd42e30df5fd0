// SPDX-License-Identifier: Apache-2.0
#include "server/router_costs.h"

#include <algorithm>
#include <utility>

namespace wideep::server {

size_t cheapest_replica(std::span<const ReplicaCost> replicas, uint64_t prompt_bytes,
                        size_t first) {
  size_t best = kNoReplica;
  std::pair<bool, uint64_t> least;
  for (size_t i = 0; i < replicas.size(); ++i) {
    const size_t at = (first + i) % replicas.size();
    const ReplicaCost& each = replicas[at];
    if (each.is_tried) continue;
    const std::pair cost(!each.is_up,
                         each.work + prompt_bytes - std::min(each.known, prompt_bytes));
    if (best != kNoReplica && cost >= least) continue;
    best = at;
    least = cost;
  }
  return best;
}

}  // namespace wideep::server
