// SPDX-License-Identifier: Apache-2.0
#include "model/perfect_router.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::model {
namespace {

constexpr float kChosen = 10.0f;

// `count` things are divided into `blocks` equal blocks. Returns the n-th thing when the blocks
// take turns: one of block 0, one of block 1, …
int32_t across(int64_t n, int count, int blocks) {
  if (blocks > count || count % blocks != 0) blocks = 1;
  const int64_t i = n % count;
  return static_cast<int32_t>(i % blocks * (count / blocks) + i / blocks);
}

}  // namespace

Status PerfectRouter::check(const RoutingConfig& routing, int ep_size) {
  if (routing.num_experts % ep_size == 0) return {};
  return invalid_input(
      fmt::format("perfect router: expected a number of ranks that divides the {} experts, found "
                  "{}; choose another number of ranks",
                  routing.num_experts, ep_size));
}

PerfectRouter::PerfectRouter(const RoutingConfig& routing, int ep_size, int rank)
    : routing_(routing),
      num_groups_(routing.num_groups),
      groups_of_token_(num_groups_ == 1 ? 1 : routing.top_k_groups),
      group_size_(routing.num_experts / num_groups_),
      ep_size_(ep_size),
      groups_taken_(static_cast<int64_t>(rank) * groups_of_token_),
      members_taken_(num_groups_, rank),
      zero_bias_(routing.num_experts, 0.0f) {}

const float* PerfectRouter::logits(int num_tokens) {
  while (num_tokens_ < num_tokens) add_token();
  return logits_.data();
}

// The top_k choices of a token go round-robin through its groups.
void PerfectRouter::add_token() {
  const size_t first = logits_.size();
  logits_.resize(first + routing_.num_experts, -kChosen);
  std::vector<int32_t> groups(groups_of_token_);
  for (int32_t& group : groups) group = next_group();
  for (int k = 0; k < routing_.top_k; ++k) {
    const int32_t group = groups[k % groups_of_token_];
    logits_[first + static_cast<size_t>(group) * group_size_ + next_member(group)] = kChosen;
  }
  ++num_tokens_;
}

// Successive choices lie on different ranks: if a rank has several groups, successive groups do; if
// a group spans several ranks, successive members of a group do.
int32_t PerfectRouter::next_group() { return across(groups_taken_++, num_groups_, ep_size_); }

int32_t PerfectRouter::next_member(int32_t group) {
  return across(members_taken_[group]++, group_size_, std::max(1, ep_size_ / num_groups_));
}

}  // namespace wideep::model
