// SPDX-License-Identifier: Apache-2.0
//
// The memory of a rank's KV cache, in pages of one size. Pages are allocated when first needed and
// kept for reuse. Not thread safe.
#pragma once

#include <vector>

#include "base/aligned_bytes.h"
#include "base/check.h"
#include "model/kv_layout.h"

namespace wideep::engine {

class PagePool {
 public:
  PagePool(size_t page_bytes, int max_pages) : page_bytes_(page_bytes), max_pages_(max_pages) {}

  // REQUIRES: fewer than max_pages are taken.
  std::byte* take() {
    if (free_.empty()) {
      WIDEEP_CHECK_LT(memory_.size(), static_cast<size_t>(max_pages_));
      memory_.emplace_back(page_bytes_);
      return memory_.back().data();
    }
    std::byte* page = free_.back();
    free_.pop_back();
    return page;
  }

  void give_back(model::PageList& pages) {
    free_.insert(free_.end(), pages.begin(), pages.end());
    pages.clear();
  }

 private:
  size_t page_bytes_;
  int max_pages_;
  std::vector<base::AlignedBytes> memory_;
  std::vector<std::byte*> free_;
};

// Pages that hold `num_tokens` positions.
inline int pages_for(int num_tokens) {
  return (num_tokens + kernels::kPageTokens - 1) / kernels::kPageTokens;
}

}  // namespace wideep::engine
