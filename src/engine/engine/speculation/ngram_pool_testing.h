// SPDX-License-Identifier: Apache-2.0
//
// For tests: a slow and obvious NgramPool.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "engine/speculation/ngram_pool.h"

namespace wideep::engine {

// The rules as they are written down, with lists of all matches.
class SlowPool {
 public:
  explicit SlowPool(const NgramOptions& options) : options_(options) {}

  void add(const std::vector<int32_t>& tokens) {
    const int count = static_cast<int>(tokens.size());
    for (int size = std::min(options_.max_matching_ngram_size, count - 1); size > 0; --size) {
      for (int at = 0; at + size < count; ++at) {
        const int end = std::min(at + size + options_.max_draft_len, count);
        const std::vector<int32_t> pattern(tokens.begin() + at, tokens.begin() + at + size);
        const std::vector<int32_t> match(tokens.begin() + at + size, tokens.begin() + end);
        std::vector<std::vector<int32_t>>& matches = pool_[pattern];
        if (std::find(matches.begin(), matches.end(), match) != matches.end()) continue;
        std::erase_if(matches,
                      [&](const std::vector<int32_t>& each) { return each.size() < match.size(); });
        matches.push_back(match);
      }
    }
  }

  std::vector<int32_t> find(const std::vector<int32_t>& text) const {
    int size = std::min(options_.max_matching_ngram_size, static_cast<int>(text.size()) - 1);
    for (; size > 0; --size) {
      const auto known = pool_.find(std::vector<int32_t>(text.end() - size, text.end()));
      if (known == pool_.end()) continue;
      return options_.is_use_oldest ? known->second.front() : known->second.back();
    }
    return {};
  }

  int num_patterns() const { return static_cast<int>(pool_.size()); }
  int num_matches() const {
    size_t sum = 0;
    for (const auto& [pattern, matches] : pool_) sum += matches.size();
    return static_cast<int>(sum);
  }

 private:
  NgramOptions options_;
  std::map<std::vector<int32_t>, std::vector<std::vector<int32_t>>> pool_;
};

}  // namespace wideep::engine
