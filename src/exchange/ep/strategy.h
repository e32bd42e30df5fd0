// SPDX-License-Identifier: Apache-2.0
//
// Chooses the dispatch strategy that moves fewer bytes. The choice is a pure function of the shape,
// so all ranks make the same one. It does not change the bits of any result.
//
// Cost model, with slots chosen uniformly: a token takes top_k of the S = num_owners ×
// slots_per_rank slots. A given rank has none of them with probability
//
//   q = C(S − slots_per_rank, top_k) / C(S, top_k)
//
// Rows per token:
//
//   dispatch    (ep_size − 1) · (1 − q): one to every other rank that has a slot of the token
//   all-gather  1 in shared memory, since all ranks read the same published row;
//               between nodes ep_size − 1, the most that dispatch could send
//
// So all-gather never wins between nodes. Lists of slots count too: with all-gather every rank
// reads the lists of all tokens.
//
// Thread safety: pure functions.
#pragma once

#include <string>

#include "ep/buffer_layout.h"

namespace wideep::ep {

struct StrategyChoice {
  Strategy strategy = Strategy::kDispatch;
  double dispatch_bytes = 0.0;  // per token
  double gather_bytes = 0.0;    // per token

  // The strategy and what both cost, in one line for the log.
  std::string reason() const;
  // Bytes per token with `strategy`.
  double bytes() const { return strategy == Strategy::kAllGather ? gather_bytes : dispatch_bytes; }
};

// The expected number of ranks, other than the source, that have a slot of a token.
double expected_peers(const DispatchShape& shape);

// shape.strategy, with what both would cost.
StrategyChoice strategy_of(const DispatchShape& shape);
// The cheaper strategy for the shape; ignores shape.strategy.
StrategyChoice choose_strategy(const DispatchShape& shape);

}  // namespace wideep::ep
