// SPDX-License-Identifier: Apache-2.0
//
// Attention data parallelism: when do ranks begin with new prompts? An iteration takes as long as
// its slowest rank, so it is best when all ranks compute prompts in the same iterations
// (TensorRT-LLM's attention_dp_config):
//
//   enable_balance       while all ranks generate, new prompts wait until every rank has some,
//   batching_wait_iters  then for so many iterations more, that there be more of them,
//   timeout_iters        but none waits for longer than so many iterations in all.
//
// A prompt that is let in goes on. Where some rank has nothing to generate, nobody waits. All ranks
// decide alike, from what all have said of the iteration before.
#pragma once

#include <span>

namespace wideep::engine {

struct PromptBalance {
  bool enabled = false;
  int timeout_iters = 50;
  int batching_wait_iters = 10;

  bool operator==(const PromptBalance&) const = default;
};

// What a rank says of itself.
struct RankReadiness {
  bool has_prompts = false;  // that it computes or might begin with
  bool generates = false;
  bool has_room = true;  // for one more in its iterations
};

class PromptGate {
 public:
  explicit PromptGate(const PromptBalance& balance) : balance_(balance) {}

  // Whether new prompts may begin in the next iteration.
  bool open(std::span<const RankReadiness> ranks);

 private:
  bool decide(std::span<const RankReadiness> ranks) const;

  PromptBalance balance_;
  int held_ = 0;       // iterations in which somebody has been held, since the gate was open
  int all_ready_ = 0;  // of these, in which all ranks had prompts
};

}  // namespace wideep::engine
