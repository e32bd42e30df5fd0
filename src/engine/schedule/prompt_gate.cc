// SPDX-License-Identifier: Apache-2.0
#include "schedule/prompt_gate.h"

#include <algorithm>

namespace wideep::engine {
namespace {

bool are_ready(std::span<const RankReadiness> ranks) {
  return std::ranges::all_of(
      ranks, [](const RankReadiness& rank) { return rank.has_prompts && rank.has_room; });
}

}  // namespace

bool PromptGate::decide(std::span<const RankReadiness> ranks) const {
  // A rank that does not generate would idle until its next prompt may begin.
  if (!std::ranges::all_of(ranks, &RankReadiness::generates)) return true;
  if (held_ >= balance_.timeout_iters) return true;
  return are_ready(ranks) && all_ready_ >= balance_.batching_wait_iters;
}

bool PromptGate::open(std::span<const RankReadiness> ranks) {
  if (!balance_.enabled) return true;
  if (decide(ranks)) {
    held_ = all_ready_ = 0;
    return true;
  }
  if (std::ranges::any_of(ranks, &RankReadiness::has_prompts)) ++held_;
  if (are_ready(ranks)) ++all_ready_;
  return false;
}

}  // namespace wideep::engine
