// SPDX-License-Identifier: Apache-2.0
//
// The scores that an indexer gives entries, each made of a group of positions (entry_indexer.h,
// sparse_indexer.h), and the choices from them: what index_scores.h does for positions.
//
// Thread safety: called by one thread per rank; choices are made on all threads of its pool.
#pragma once

#include <cstddef>
#include <functional>

#include "model/parts/mixer.h"

namespace wideep::model {

struct EntryKeys {
  int group = 0;  // positions of an entry
  int least = 0;  // tokens that see no more entries have no choice
  // The key of an entry in the cache, in KvLayout::index_dtype(). Called on any thread.
  std::function<const std::byte*(const PageList& pages, int entry)> find;

  // Entries that a token at `position` sees: those of groups that are complete.
  int visible(int position) const { return (position + 1) / group; }
};

// Chooses for a token of the batch from the scores of all entries that it sees.
using ChooseEntries = std::function<void(int token, int num_entries, const float* scores)>;

// Calls `choose`, on any thread, for each token of the batch that sees more than keys.least entries.
// call.scratch has the queries, index_query, [num_tokens, heads, head_dim], and their weights,
// index_weights, [num_tokens, heads].
void score_entries(const MixerCall& call, const IndexerConfig& options, const EntryKeys& keys,
                   const ChooseEntries& choose);

}  // namespace wideep::model
