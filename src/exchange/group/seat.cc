// SPDX-License-Identifier: Apache-2.0
#include "group/seat.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/try.h"

namespace wideep::transport {

Status wait_for_weights(Endpoint& endpoint) {
  constexpr std::chrono::hours kLoadingTimeout{2};
  const std::chrono::milliseconds timeout = endpoint.timeout();
  endpoint.set_timeout(std::max<std::chrono::milliseconds>(timeout, kLoadingTimeout));
  const Status status = endpoint.barrier({.what = "its weights"});
  endpoint.set_timeout(timeout);
  return status;
}

Result<std::optional<Members>> FixedSeat::join() {
  if (std::exchange(has_joined_, true)) return std::optional<Members>();
  WIDEEP_TRY(wait_for_weights(world_));
  Members all{.epoch = 1, .ranks = std::vector<int>(static_cast<size_t>(world_.num_ranks()))};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  return std::optional(std::move(all));
}

}  // namespace wideep::transport
