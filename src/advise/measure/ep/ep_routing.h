// SPDX-License-Identifier: Apache-2.0
//
// The experts of synthetic tokens. The same seed gives the same routing everywhere, so that two
// implementations of the all-to-all carry the same rows.
//
// Expert e is in slot e, and every rank has equally many slots.
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
  kHot,     // all tokens: experts 0 … top_k − 1, on as few ranks as possible
  kSpread,  // each token: on as many ranks as possible; rows per token then depend on top_k alone
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

// Experts of one rank's tokens: [num_tokens, top_k], those of a token distinct.
// REQUIRES: 1 <= top_k <= num_experts, num_experts a multiple of num_ranks.
std::vector<int32_t> route_tokens(const EpGroup& group, int rank, int num_tokens);

// The router's weights of one rank's tokens: [num_tokens, top_k]; those of a token sum to 1.
std::vector<float> weigh_tokens(const EpGroup& group, int rank, int num_tokens);

}  // namespace wideep::measure
