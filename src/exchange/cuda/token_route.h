// SPDX-License-Identifier: Apache-2.0
//
// Where a token goes: a warp looks at its slots, lane k at the k-th. Dispatch and combine find the
// same route.
//
// Thread safety: the lanes of a warp together.
#pragma once

#include "cuda/protocol.h"
#include "cuda/row_values.h"

namespace wideep::cuda {

// In lane k ≥ top_k: no slot, rank −1.
struct TokenRoute {
  int32_t slot = -1;
  int32_t rank = -1;          // that has the slot; −1: the slot does not exist
  int32_t message = -1;       // of the token to that rank
  int32_t place = 0;          // of the slot among the token's slots on that rank
  bool is_duplicate = false;  // an earlier lane has the same slot
  uint32_t first_lanes = 0;   // bits: one lane for each rank of the token
  uint32_t wrong_slots = 0;   // bits: slots that no rank has, twice the same, of inactive ranks
};

inline constexpr int kAllRanks = -1;

// only_rank: of what index has found for other ranks, nothing is read, and first_lanes has the lane
// of this rank only.
template <typename Lane>
WIDEEP_DEVICE TokenRoute find_route(Lane& lane, const Exchange& x, const Tokens& tokens, int token,
                                    int only_rank = kAllRanks) {
  const ExchangeShape& shape = x.layout.shape();
  const int me = lane.lane();
  const bool has_slot = me < shape.top_k;
  TokenRoute route;
  if (has_slot)
    route.slot = lane.load(tokens.slots + static_cast<int64_t>(token) * shape.top_k + me);
  const bool exists =
      has_slot && static_cast<uint32_t>(route.slot) < static_cast<uint32_t>(shape.num_slots());
  if (exists) route.rank = route.slot / shape.slots_per_rank;

  // Lanes without a slot get numbers of their own, so that they match nobody.
  const uint32_t same_slot = lane.match(exists ? route.slot : -1 - me);
  const uint32_t same_rank = lane.match(exists ? route.rank : -1 - me);
  route.is_duplicate = exists && lowest_bit(same_slot) != me;
  route.place = bits_below(same_rank, me);
  const bool has_message = exists && is_active(lane, x, route.rank);
  const bool is_right = !has_slot || (has_message && !route.is_duplicate);
  route.wrong_slots = lane.ballot(!is_right);
  const bool is_wanted = only_rank == kAllRanks || only_rank == route.rank;
  route.first_lanes = lane.ballot(exists && route.place == 0 && is_wanted);
  if (has_message && is_wanted) {
    route.message =
        lane.load(x.message_of + static_cast<int64_t>(route.rank) * shape.max_tokens + token);
  }
  return route;
}

}  // namespace wideep::cuda
