// SPDX-License-Identifier: Apache-2.0
//
// Logits that send tokens to all ranks evenly, in place of the router's own: what a run would take
// if experts were perfectly balanced. What the model then says means nothing.
//
// As TensorRT-LLM's ENABLE_PERFECT_ROUTER: experts stand on ranks in order, E / ep_size on each;
// the chosen have a logit of 10, the others of −10. The i-th choice of all tokens of rank r, i = 0,
// 1, …, is expert (j mod R)·E/R + ⌊j / R⌋ mod E/R with j = i + r. With DeepSeek's groups, of which
// a token may choose only some, the groups come in turn, and inside each its experts as above.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "wideep/status.h"

namespace wideep::model {

class PerfectRouter {
 public:
  // Errors (invalid input): ranks cannot all have as many experts.
  static Status check(const RoutingConfig& routing, int ep_size);

  // REQUIRES: check().
  PerfectRouter(const RoutingConfig& routing, int ep_size, int rank);

  // [num_tokens, num_experts], until the next call. A token's depend on its index only, so that
  // they are computed once. For DeepSeek's method the bias must be zero: zero_bias().
  const float* logits(int num_tokens);
  const float* zero_bias() const { return zero_bias_.data(); }

 private:
  void add_token();
  int32_t next_group();
  int32_t next_member(int32_t group);

  RoutingConfig routing_;
  int num_groups_, groups_of_token_, group_size_;
  int ep_size_;
  int64_t groups_taken_;                // as next_group() counts
  std::vector<int64_t> members_taken_;  // [num_groups]
  int num_tokens_ = 0;                  // in logits_
  std::vector<float> logits_;
  std::vector<float> zero_bias_;
};

}  // namespace wideep::model
