// SPDX-License-Identifier: Apache-2.0
//
// Which experts made-up tokens go to: the same for whoever asks with the same seed, so that two
// implementations of the all-to-all carry the same rows.
//
// Expert e sits in slot e, and every rank has as many slots as every other.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wideep/status.h"

namespace wideep::measure {

enum class EpRouting {
  kRandom,  // each token: top_k different experts, all equally likely
  kHot,     // all tokens: experts 0 … top_k − 1, on as few ranks as can be
  kSpread,  // each token: on as many ranks as can be, so that rows per token depend on top_k alone
};
std::string_view routing_name(EpRouting routing);
// Errors (invalid input): another name.
Result<EpRouting> routing_of(const std::string& name);

struct EpGroup {
  int num_ranks = 2;
  int num_experts = 256;
  int top_k = 8;
  EpRouting routing = EpRouting::kRandom;
  uint64_t seed = 1;

  int slots_per_rank() const { return num_experts / num_ranks; }
  int rank_of(int32_t expert) const { return expert / slots_per_rank(); }
};

// Of one rank's tokens: [num_tokens, top_k], the experts of a token distinct.
// REQUIRES: 1 <= top_k <= num_experts, num_experts a multiple of num_ranks.
std::vector<int32_t> route_tokens(const EpGroup& group, int rank, int num_tokens);

// The router's weights of as many tokens, each token's summing to 1: [num_tokens, top_k].
std::vector<float> weigh_tokens(const EpGroup& group, int rank, int num_tokens);

}  // namespace wideep::measure
