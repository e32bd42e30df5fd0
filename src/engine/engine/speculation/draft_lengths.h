// SPDX-License-Identifier: Apache-2.0
//
// How many tokens of each request's draft a step should verify, for the most tokens per second.
//
// A step over B requests yields B tokens and those of the drafts that are right; each token that it
// verifies makes it longer. The draft tokens are taken in the order of their chance to be right
// together with all before them, as long as (expected tokens) / (expected time) grows.
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace wideep::engine {

struct DraftLengths {
  std::vector<int> lengths;    // [requests]
  double expected_tokens = 0;  // of the step
  double expected_seconds = 0;
};

// chances: for each request, of each draft token to be right if those before it are. seconds(n): of
// a step with n tokens.
DraftLengths choose_draft_lengths(std::span<const std::vector<double>> chances,
                                  const std::function<double(int)>& seconds);
// All drafts that are likely to be right, whatever they cost.
DraftLengths likely_draft_lengths(std::span<const std::vector<double>> chances,
                                  const std::function<double(int)>& seconds);

}  // namespace wideep::engine
