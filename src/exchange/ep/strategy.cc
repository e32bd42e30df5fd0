// SPDX-License-Identifier: Apache-2.0
#include "ep/strategy.h"

#include <fmt/format.h>

namespace wideep::ep {
namespace {

// q of strategy.h as a product: the k-th choice is among the S − k slots not yet taken, of which
// S − slots_per_rank − k are elsewhere. (The binomial coefficients themselves could overflow.)
double probability_of_no_slot(const DispatchShape& shape) {
  const double slots = shape.num_owners() * shape.slots_per_rank;
  double q = 1.0;
  for (int k = 0; k < shape.top_k; ++k) {
    const double elsewhere = slots - shape.slots_per_rank - k;
    if (elsewhere <= 0.0) return 0.0;
    q *= elsewhere / (slots - k);
  }
  return q;
}

}  // namespace

double expected_peers(const DispatchShape& shape) {
  return (shape.ep_size - 1) * (1.0 - probability_of_no_slot(shape));
}

StrategyChoice strategy_of(const DispatchShape& shape) {
  const double row = static_cast<double>(shape.row_bytes);
  const double lists = shape.top_k * (shape.combine == Combine::kReduced ? 8.0 : 4.0);
  const double peers = shape.ep_size - 1;
  StrategyChoice choice{.strategy = shape.strategy};
  choice.dispatch_bytes = expected_peers(shape) * (row + lists);
  choice.gather_bytes = (shape.num_nodes > 1 ? peers : 1.0) * row + peers * lists;
  return choice;
}

StrategyChoice choose_strategy(const DispatchShape& shape) {
  StrategyChoice choice = strategy_of(shape);
  choice.strategy =
      choice.gather_bytes < choice.dispatch_bytes ? Strategy::kAllGather : Strategy::kDispatch;
  return choice;
}

std::string StrategyChoice::reason() const {
  return strategy == Strategy::kAllGather
             ? fmt::format("all-gather: {:.0f} bytes per token, where dispatch would send {:.0f}",
                           gather_bytes, dispatch_bytes)
             : fmt::format("dispatch: {:.0f} bytes per token, where all-gather would take {:.0f}",
                           dispatch_bytes, gather_bytes);
}

}  // namespace wideep::ep
