// SPDX-License-Identifier: Apache-2.0
//
// What speculation has done in an iteration, or in many.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/iteration_record.h"

namespace wideep::run {

struct SpeculationTotals {
  int64_t drafts = 0;                // steps of a request with at least one draft token
  int64_t drafted = 0;               // draft tokens in them
  int64_t accepted = 0;              // of these, right
  std::vector<int64_t> accepted_at;  // [place in a draft] how often it was right

  // Of the steps for which draft lengths were chosen by what they bring, and that no prompt shared:
  // what was expected of them, and what came.
  double expected_tokens = 0, tokens = 0;
  double expected_seconds = 0, seconds = 0;

  // Over the ranks that report tokens, of ranks that draft alike the first; of several iterations
  // the last.
  int64_t bytes = 0;     // memory of the drafters
  int64_t given_up = 0;  // ranks that draft nothing any more

  void add(const engine::IterationRecord& rank);
  SpeculationTotals& operator+=(const SpeculationTotals& other);

  double acceptance_rate() const {
    return drafted == 0 ? 0.0 : static_cast<double>(accepted) / static_cast<double>(drafted);
  }
  // Tokens that a step with a draft has yielded on average: 1 is the least.
  double acceptance_length() const {
    return drafts == 0 ? 1.0 : 1.0 + static_cast<double>(accepted) / static_cast<double>(drafts);
  }
};

}  // namespace wideep::run
