// SPDX-License-Identifier: Apache-2.0
//
// Which strategy of dispatch moves fewer bytes: a pure function of the shape, so that all ranks
// choose alike. Results are the same bits either way.
//
// Rows that a token costs, if slots are chosen evenly: of S = ep_size × slots_per_rank slots the
// token takes top_k, and a rank has none of them with probability
//
//   q = C(S − slots_per_rank, top_k) / C(S, top_k)
//
// (of ranks that share slots, S counts these once, and all or none of the ranks have them)
//
//   dispatch    (ep_size − 1) · (1 − q): a row to every other rank that has any
//   all-gather  1 in shared memory, where all read the row that was laid down once;
//               between nodes a row to every rank of the others, as many as dispatch at most has
//
// Between nodes all-gather can therefore not win. Lists of slots, which all ranks read of all
// tokens when gathering, count as bytes too.
#pragma once

#include <string>

#include "ep/buffer_layout.h"

namespace wideep::ep {

struct StrategyChoice {
  Strategy strategy = Strategy::kDispatch;
  double dispatch_bytes = 0.0;  // per token
  double gather_bytes = 0.0;    // the same

  // For people, one line.
  std::string reason() const;
};

// Ranks other than its own that have any of a token's slots, if slots are chosen evenly.
double expected_peers(const DispatchShape& shape);

// Whatever shape.strategy says.
StrategyChoice choose_strategy(const DispatchShape& shape);

}  // namespace wideep::ep
