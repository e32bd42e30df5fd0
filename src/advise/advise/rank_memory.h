// SPDX-License-Identifier: Apache-2.0
//
// Thread safety: a plain value; a pure function.
#pragma once

#include "cost/layout.h"
#include "model/config/config.h"

namespace wideep::advise {

// Bytes of a rank without its cache, and of the cache of one token.
struct RankMemory {
  double weights = 0.0;     // the sum of the next four
  double dense = 0.0;       // attention, dense MLPs, shared experts, routers
  double experts = 0.0;     // in as few slots as hold all of them
  double replicas = 0.0;    // in the slots beyond
  double vocabulary = 0.0;  // embeddings and LM head
  double token = 0.0;
};
RankMemory memory_of(const model::ModelConfig& config, const cost::Layout& layout);

}  // namespace wideep::advise
