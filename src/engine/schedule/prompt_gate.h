// SPDX-License-Identifier: Apache-2.0
//
// Attention data parallelism: when do ranks begin new prompts? An iteration takes as long as its
// slowest rank, so it is best if all ranks compute prompts in the same iterations (TensorRT-LLM's
// attention_dp_config):
//
//   enable_balance       while all ranks generate, new prompts wait until every rank has some,
//   batching_wait_iters  then this many iterations more, so that more prompts arrive,
//   timeout_iters        but no prompt waits longer than this many iterations in total.
//
// A prompt that has begun is never held again. If a rank has nothing to generate, the gate is open.
// All ranks decide the same, from the readiness that all of them sent for the previous iteration.
#pragma once

#include <span>

namespace wideep::engine {

struct PromptBalance {
  bool enabled = false;
  int timeout_iters = 50;
  int batching_wait_iters = 10;

  bool operator==(const PromptBalance&) const = default;
};

// The state of a rank that the gate depends on.
struct RankReadiness {
  bool has_prompts = false;  // some are begun or could begin
  bool generates = false;
  bool has_room = true;  // for one more request that generates

  bool operator==(const RankReadiness&) const = default;
};

class PromptGate {
 public:
  explicit PromptGate(const PromptBalance& balance) : balance_(balance) {}

  // Whether new prompts may begin in the next iteration. Called once per iteration.
  bool open(std::span<const RankReadiness> ranks);

 private:
  bool decide(std::span<const RankReadiness> ranks) const;

  PromptBalance balance_;
  int held_ = 0;       // iterations since the gate closed in which a rank had prompts
  int all_ready_ = 0;  // iterations since the gate closed in which all ranks had prompts and room
};

}  // namespace wideep::engine
