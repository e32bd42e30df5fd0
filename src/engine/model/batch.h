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
  // [tokens of the step] the state of the token's sequence, which the forward pass advances; zeros
  // before its first token. Tokens of a sequence are consecutive. Empty if the model keeps none
  // (state_layout.h). The tokens of the step are those of the batch; with context parallelism, the
  // tokens of all ranks that share sequences, in the same order on each of them.
  std::vector<std::byte*> states;
  // [tokens of the step] where the state after the token is copied to, as drafts may be wrong;
  // null: nowhere. Empty if the model keeps none.
  std::vector<std::byte*> saved_states;
  // [num_tokens] with context parallelism and states: the batch's tokens among those of the step,
  // ascending. Else empty.
  std::vector<int32_t> step_rows;
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
    step_rows.clear();
    logit_rows.clear();
    tokens_of_ranks.clear();
  }
};

}  // namespace wideep::model
