// SPDX-License-Identifier: Apache-2.0
//
// Logits that send tokens to all ranks evenly, instead of the router's own: to measure how fast a
// run would be with perfectly balanced experts. The generated texts are meaningless.
//
// As TensorRT-LLM's ENABLE_PERFECT_ROUTER: rank r of R holds experts r·E/R to (r + 1)·E/R − 1.
// Chosen experts have the logit 10, the others −10. Which ones: perfect_choices.h.
//
// Thread safety: one thread.
#pragma once

#include <vector>

#include "model/config/config.h"
#include "model/parts/perfect_choices.h"
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
  PerfectChoices choices_;
  int num_experts_;
  int num_tokens_ = 0;  // in logits_
  std::vector<float> logits_;
  std::vector<float> zero_bias_;
};

}  // namespace wideep::model
