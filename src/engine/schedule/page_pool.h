// SPDX-License-Identifier: Apache-2.0
//
// The memory of a rank's KV cache, in pages of one size, allocated when first needed.
// schedule/page_cache.h keeps track of their users. Not thread safe.
#pragma once

#include <algorithm>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/check.h"
#include "model/kv_layout.h"

namespace wideep::engine {

class PagePool {
 public:
  // memory: max_pages · page_bytes shared with other ranks; null: the pool allocates its own.
  PagePool(size_t page_bytes, int max_pages, std::byte* memory = nullptr)
      : page_bytes_(page_bytes), max_pages_(max_pages), given_(memory) {}

  // A page that was never taken before. REQUIRES: num_pages() < max_pages.
  std::byte* take() {
    WIDEEP_CHECK_LT(num_pages_, max_pages_);
    const int page = num_pages_++;
    if (given_ != nullptr) return given_ + static_cast<size_t>(page) * page_bytes_;
    memory_.emplace_back(page_bytes_);
    return memory_.back().data();
  }

  int num_pages() const { return num_pages_; }  // taken so far

 private:
  size_t page_bytes_;
  int max_pages_;
  std::byte* given_;
  int num_pages_ = 0;
  std::vector<base::AlignedBytes> memory_;
};

// Pages that hold `num_tokens` positions.
inline int pages_for(int num_tokens) {
  return num_tokens / kernels::kPageTokens + (num_tokens % kernels::kPageTokens > 0 ? 1 : 0);
}

// `pages` pages of a sequence are dealt to `ranks` ranks in turns of `turn_pages`: the largest
// number that one rank gets.
inline int max_pages_of_rank(int pages, int ranks, int turn_pages) {
  const int round = ranks * turn_pages;
  return pages / round * turn_pages + std::min(pages % round, turn_pages);
}

}  // namespace wideep::engine
