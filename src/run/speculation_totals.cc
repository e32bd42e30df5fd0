// SPDX-License-Identifier: Apache-2.0
#include "run/speculation_totals.h"

namespace wideep::run {

void SpeculationTotals::add(std::span<const engine::Verified> steps) {
  for (const engine::Verified& step : steps) {
    ++drafts;
    drafted += step.drafted;
    accepted += step.accepted;
    if (accepted_at.size() < static_cast<size_t>(step.accepted)) {
      accepted_at.resize(static_cast<size_t>(step.accepted));
    }
    for (int i = 0; i < step.accepted; ++i) ++accepted_at[static_cast<size_t>(i)];
  }
}

}  // namespace wideep::run
