// SPDX-License-Identifier: Apache-2.0
//
// For tests that go over families and layouts: layouts of ranks, as options of a run.
#pragma once

#include <chrono>
#include <memory>

#include "model/config/config.h"
#include "parallel/mapping.h"
#include "restless_policy.h"
#include "run/generate.h"

namespace wideep::tests {

struct Layout {
  const char* name;
  parallel::ParallelSizes sizes;
  bool attention_dp = false;
  bool online = false;
  int prefill_chunk = 0;  // 0: whole prompts
};

inline parallel::ParallelSizes sizes_of(int tp, int pp, int cp, int moe_tp = 1) {
  return {.tp = tp, .pp = pp, .cp = cp, .moe_tp = moe_tp, .moe_ep = tp / moe_tp, .moe_cluster = 1};
}

inline void set_layout(const Layout& layout, run::GenerateOptions* options) {
  options->parallel.sizes = layout.sizes;
  options->parallel.enable_attention_dp = layout.attention_dp;
  options->prefill_chunk = layout.prefill_chunk;
}

// Experts move in every iteration, as fast as the balancer can look.
inline void move_all_the_time(const model::ModelConfig& config, run::GenerateOptions* options) {
  options->adjust_online = [experts = config.routing.num_experts](run::OnlineParts& parts) {
    parts.make_policy = [experts, layers = parts.plan.num_layers] {
      return std::make_unique<RestlessPolicy>(layers, experts, 1);
    };
    parts.plan.balancer.look_interval = std::chrono::microseconds(100);
  };
}

}  // namespace wideep::tests
