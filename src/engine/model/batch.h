// SPDX-License-Identifier: Apache-2.0
//
// What one iteration computes on one rank: prompt chunks and decode tokens together.
//
// Thread safety: a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/kv_layout.h"

namespace wideep::model {

struct Batch {
  std::vector<int32_t> ids;        // [num_tokens]
  std::vector<int32_t> positions;  // [num_tokens], in the token's sequence
  // [num_tokens] length of the sequence's prompt: positions before it are prompt, others generated.
  std::vector<int32_t> prompt_lengths;
  // [num_tokens] the pages of the token's sequence, at least up to its position. Keys and values of
  // all earlier positions are in these pages, or belong to earlier tokens of this batch.
  std::vector<const PageList*> pages;
  // [num_tokens] the state of the token's sequence, which the forward pass advances; zeros before
  // its first token. Empty if the model keeps none (state_layout.h).
  std::vector<std::byte*> states;
  // [num_tokens] where the state after the token is copied to, as drafts may be wrong; null:
  // nowhere. Empty if the model keeps none.
  std::vector<std::byte*> saved_states;
  std::vector<int32_t> logit_rows;  // indices of the tokens whose logits are needed, ascending
  // [ep_size] the number of tokens of every rank in this iteration; equal on all ranks. May be
  // empty if the dispatch has no limit of tokens (DispatchShape::max_group_tokens).
  std::vector<int32_t> tokens_of_ranks;

  int num_tokens() const { return static_cast<int>(ids.size()); }
  void clear() {
    ids.clear();
    positions.clear();
    prompt_lengths.clear();
    pages.clear();
    states.clear();
    saved_states.clear();
    logit_rows.clear();
    tokens_of_ranks.clear();
  }
};

}  // namespace wideep::model
