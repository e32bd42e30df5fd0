// SPDX-License-Identifier: Apache-2.0
//
// What one iteration computes on one rank: prompt chunks and decode tokens side by side.
#pragma once

#include <cstdint>
#include <vector>

#include "model/kv_layout.h"

namespace wideep::model {

struct Batch {
  std::vector<int32_t> ids;        // [num_tokens]
  std::vector<int32_t> positions;  // [num_tokens], in the token's sequence
  // [num_tokens] of the token's sequence: tokens before it are prompt, the others generated.
  std::vector<int32_t> prompt_lengths;
  // [num_tokens] the pages of the token's sequence, which reach its position. Keys and values of
  // all earlier positions are in them or in this batch before the token.
  std::vector<const PageList*> pages;
  std::vector<int32_t> logit_rows;  // tokens whose logits are wanted, ascending
  // [ep_size] tokens of every rank in this iteration, equal on all of them. Empty: not known, which
  // serves where nothing bounds the tokens of a dispatch.
  std::vector<int32_t> tokens_of_ranks;

  int num_tokens() const { return static_cast<int>(ids.size()); }
  void clear() {
    ids.clear();
    positions.clear();
    prompt_lengths.clear();
    pages.clear();
    logit_rows.clear();
    tokens_of_ranks.clear();
  }
};

}  // namespace wideep::model
