// SPDX-License-Identifier: Apache-2.0
#include "run/speculation_totals.h"

#include <algorithm>

namespace wideep::run {

void SpeculationTotals::add(const engine::IterationRecord& rank) {
  for (const engine::Verified& step : rank.verified) {
    ++drafts;
    drafted += step.drafted;
    accepted += step.accepted;
    const auto places = static_cast<size_t>(step.drafted);
    if (accepted_at.size() < places) accepted_at.resize(places);
    for (int i = 0; i < step.accepted; ++i) ++accepted_at[static_cast<size_t>(i)];
  }
  bytes += rank.draft_bytes;
  given_up += rank.gave_up_drafts ? 1 : 0;
  if (rank.forecast.seconds == 0 || rank.prompt_tokens > 0) return;
  expected_tokens += rank.forecast.tokens;
  tokens += static_cast<double>(rank.generated_tokens);
  expected_seconds += rank.forecast.seconds;
  seconds += static_cast<double>(rank.end_ns - rank.begin_ns) * 1e-9;
}

SpeculationTotals& SpeculationTotals::operator+=(const SpeculationTotals& other) {
  drafts += other.drafts;
  drafted += other.drafted;
  accepted += other.accepted;
  accepted_at.resize(std::max(accepted_at.size(), other.accepted_at.size()));
  for (size_t i = 0; i < other.accepted_at.size(); ++i) accepted_at[i] += other.accepted_at[i];
  expected_tokens += other.expected_tokens;
  tokens += other.tokens;
  expected_seconds += other.expected_seconds;
  seconds += other.seconds;
  bytes = other.bytes;
  given_up = other.given_up;
  return *this;
}

}  // namespace wideep::run
