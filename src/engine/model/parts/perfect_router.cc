// SPDX-License-Identifier: Apache-2.0
#include "model/parts/perfect_router.h"

#include <fmt/format.h>

namespace wideep::model {
namespace {

constexpr float kChosen = 10.0f;

}  // namespace

Status PerfectRouter::check(const RoutingConfig& routing, int ep_size) {
  if (routing.num_experts % ep_size == 0) return {};
  return invalid_input(
      fmt::format("perfect router: expected a number of ranks that divides the {} experts, found "
                  "{}; choose another number of ranks",
                  routing.num_experts, ep_size));
}

PerfectRouter::PerfectRouter(const RoutingConfig& routing, int ep_size, int rank)
    : choices_(routing, ep_size, rank),
      num_experts_(routing.num_experts),
      zero_bias_(static_cast<size_t>(routing.num_experts), 0.0f) {}

const float* PerfectRouter::logits(int num_tokens) {
  for (; num_tokens_ < num_tokens; ++num_tokens_) {
    const size_t begin = logits_.size();
    logits_.resize(begin + static_cast<size_t>(num_experts_), -kChosen);
    for (const int32_t expert : choices_.next()) {
      logits_[begin + static_cast<size_t>(expert)] = kChosen;
    }
  }
  return logits_.data();
}

}  // namespace wideep::model
