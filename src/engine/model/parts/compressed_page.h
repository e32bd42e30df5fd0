// SPDX-License-Identifier: Apache-2.0
//
// What compressed attention (compressed_attention.h) keeps of a layer in a page, kPageTokens
// positions, all as rows:
//
//   keys      [kPageTokens, row stride] of the cache's dtype: one key of each position
//   entries   [entries, row stride] of the cache's dtype: the groups that end in the page
//   inputs    [kPageTokens, input stride] of the indexer's dtype: what each position gives to the
//             entries of its group: values, then gates; then those of the indexer's keys
//   index     [entries, index stride] of the indexer's dtype: the indexer's keys of the entries
//
// So everything that is kept belongs to a position, and a page is final once all its positions
// have been computed: pages are shared, computed again (drafts) and read by other ranks (context
// parallelism) like those of every other attention. The price is room for inputs of groups that
// are complete. docs/decisions/0007-attention.md.
//
// Entry i is made when the last position of its group is, in the page of that position. `slot` of
// an entry is written as a position, page · kPageTokens + row.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "kernels/kv_page.h"
#include "model/config/config.h"

namespace wideep::model {

// Of one of the two kinds of entries: those that tokens attend to, and the indexer's keys.
struct PooledWidths {
  int dim = 0;     // of an entry
  int series = 1;  // 2: a position gives to its own group's entry, and to the next one

  int width() const { return dim * series; }
};

struct CompressedPage {
  int group = 0;              // positions of an entry; 0: there are no entries
  PooledWidths entry, index;  // index.dim 0: no indexer
  size_t row_stride = 0, input_stride = 0, index_stride = 0;  // elements
  size_t entries = 0, inputs = 0, index_keys = 0, bytes = 0;  // offsets in a layer's part

  CompressedPage(const ModelConfig& config, const AttentionKind& kind, Dtype cache);

  // Entries that a token at `position` may attend to: those of groups that are complete.
  int visible(int position) const { return group == 0 ? 0 : (position + 1) / group; }
  int slot(int number) const {
    const int end = (number + 1) * group - 1, page = end / kernels::kPageTokens;
    return page * kernels::kPageTokens + number - page * kernels::kPageTokens / group;
  }
  // Elements of inputs before the indexer's.
  int index_begin() const { return 2 * entry.width(); }
  int input_width() const { return index_begin() + 2 * index.width(); }
};

}  // namespace wideep::model
