// SPDX-License-Identifier: Apache-2.0
//
// Which strategy of dispatch moves fewer bytes: a pure function of the shape, so that all ranks
// make the same choice. The bits of the results do not depend on it.
//
// How many rows a token costs if slots are chosen evenly: the token takes top_k of S = ep_size ×
// slots_per_rank slots, and a rank has none of these with probability
//
//   q = C(S − slots_per_rank, top_k) / C(S, top_k)
//
// (slots that several ranks share count once in S; of these ranks all or none have a slot)
//
//   dispatch    (ep_size − 1) · (1 − q): a row to every other rank that has a slot
//   all-gather  1 in shared memory, where all read the row that was published once;
//               between nodes a row to every rank of the other nodes, the most that dispatch sends
//
// So all-gather cannot win between nodes. Lists of slots count as bytes too: with all-gather every
// rank reads the lists of all tokens.
#pragma once

#include <string>

#include "ep/buffer_layout.h"

namespace wideep::ep {

struct StrategyChoice {
  Strategy strategy = Strategy::kDispatch;
  double dispatch_bytes = 0.0;  // per token
  double gather_bytes = 0.0;    // per token

  // The choice and its reason, one line for people.
  std::string reason() const;
};

// How many ranks other than its own have any of a token's slots, if slots are chosen evenly.
double expected_peers(const DispatchShape& shape);

// The better strategy for the shape; shape.strategy is ignored.
StrategyChoice choose_strategy(const DispatchShape& shape);

}  // namespace wideep::ep
