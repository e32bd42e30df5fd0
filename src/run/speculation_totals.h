// SPDX-License-Identifier: Apache-2.0
//
// What speculation has done over many steps.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/speculation/verified.h"

namespace wideep::run {

struct SpeculationTotals {
  int64_t drafts = 0;                // steps of a request with at least one draft token
  int64_t drafted = 0;               // draft tokens in them
  int64_t accepted = 0;              // of these, right
  std::vector<int64_t> accepted_at;  // [position in a draft] how often it was right

  void add(std::span<const engine::Verified> steps);

  double acceptance_rate() const {
    return drafted == 0 ? 0.0 : static_cast<double>(accepted) / static_cast<double>(drafted);
  }
  // Tokens that a step with a draft has yielded on average: 1 is the least.
  double acceptance_length() const {
    return drafts == 0 ? 1.0 : 1.0 + static_cast<double>(accepted) / static_cast<double>(drafts);
  }
};

}  // namespace wideep::run
