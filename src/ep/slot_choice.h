// SPDX-License-Identifier: Apache-2.0
//
// Which replica of its expert a token goes to.
//
// Tokens that one rank routes to one expert take its replicas in turn; the turn starts at `offset`,
// so that ranks with few tokens each do not all start at the first replica (TensorRT-LLM's
// offset_by_ep_rank). Each replica gets its equal share, plus or minus one token per rank. Which
// replica computes a row does not change the row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/placement.h"

namespace wideep::ep {

class SlotChooser {
 public:
  // experts: [num_tokens × top_k] expert ids. slots: the chosen global slot ids, same shape.
  void choose(const balance::RoutingTable& table, std::span<const int32_t> experts, int64_t offset,
              std::span<int32_t> slots);

 private:
  std::vector<int64_t> turn_;  // [num_experts]
};

}  // namespace wideep::ep
