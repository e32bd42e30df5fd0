// SPDX-License-Identifier: Apache-2.0
//
// Logits that send tokens to all ranks evenly, instead of the router's own: to measure how fast a
// run would be with perfectly balanced experts. The generated texts are meaningless.
//
// As TensorRT-LLM's ENABLE_PERFECT_ROUTER: rank r of R holds experts r·E/R to (r + 1)·E/R − 1.
// Chosen experts have the logit 10, the others −10. Rank r numbers the choices of its tokens i = 0,
// 1, …; choice i is expert (j mod R)·E/R + ⌊j / R⌋ mod E/R with j = i + r.
//
// With DeepSeek's groups, of which a token may choose fewer than it has choices, each choice is the
// expert whose rank has been chosen least so far, of these the expert that itself has been chosen
// least, of these the next in turn; among the experts of all groups until the token has as many
// groups as it may, and of these groups from then on.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config/config.h"
#include "wideep/status.h"

namespace wideep::model {

class PerfectRouter {
 public:
  // Errors (invalid input): ep_size does not divide the number of experts.
  static Status check(const RoutingConfig& routing, int ep_size);

  // REQUIRES: check().
  PerfectRouter(const RoutingConfig& routing, int ep_size, int rank);

  // [num_tokens, num_experts], valid until the next call. The logits of a token depend only on its
  // index, so they are computed once. Methods with a bias must use zero_bias() with them.
  const float* logits(int num_tokens);
  const float* zero_bias() const { return zero_bias_.data(); }

 private:
  void add_token();
  int32_t next_in_turn();
  int first_expert() const;
  int32_t next_of_groups(const std::vector<bool>& open, const float* chosen);

  RoutingConfig routing_;
  int group_size_;    // experts of a group
  int rank_experts_;  // experts of a rank
  int num_ranks_, rank_;
  int64_t num_choices_ = 0;           // so far
  std::vector<int64_t> ranks_taken_;  // [num_ranks] how often their experts have been chosen
  std::vector<int64_t> taken_;        // [num_experts] how often
  int num_tokens_ = 0;                // in logits_
  std::vector<float> logits_;
  std::vector<float> zero_bias_;
};

}  // namespace wideep::model
