// SPDX-License-Identifier: Apache-2.0
//
// What a rank tells the others of its stage before each iteration, in two of the words that they
// exchange. All ranks read the same words, so that all decide alike without a leader.
//
// Thread safety: a value; pure functions.
#pragma once

#include <cstdint>

#include "online/update_state.h"
#include "schedule/prompt_gate.h"
#include "transport/shared_memory.h"

namespace wideep::engine {

struct RankState {
  // The first word: 6 + 21 + 37 bits.
  bool has_work = false;
  bool stop_requested = false;
  bool change_requested = false;
  RankReadiness readiness;
  int pass_rows = 0;      // that prediction layers need beside the step's
  uint64_t num_seen = 0;  // commands that the rank has received

  // The second word: 21 + 7 + 4 unused + 31 + 1 bits.
  int num_tokens = 0;         // of the rank's batch, at most 2^20, as requests (parallel_config.h)
  int max_drafts = 0;         // that prediction layers may make for a request
  uint64_t last_step_us = 0;  // 0: not measured
  bool last_step_had_prompts = false;

  bool operator==(const RankState&) const = default;
};

// The words that a RankState fills; online balancing (online/update_state.h) fills those after
// them.
inline constexpr int kRankStateWords = 2;
static_assert(kRankStateWords <= online::kFirstDoneWord);

// A value that is larger than its bits becomes the largest that they hold.
void pack(const RankState& state, transport::AgreedWords& words);
RankState unpack_rank_state(const transport::AgreedWords& words);

}  // namespace wideep::engine
