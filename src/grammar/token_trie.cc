// SPDX-License-Identifier: Apache-2.0
#include "grammar/token_trie.h"

#include <algorithm>
#include <limits>

namespace wideep::grammar {

TokenTrie::TokenTrie(std::vector<std::pair<std::string, int32_t>> tokens) {
  std::erase_if(tokens, [](const auto& token) {
    return token.first.empty() || token.first.size() > std::numeric_limits<uint16_t>::max();
  });
  std::ranges::sort(tokens);  // bytes as unsigned numbers
  nodes_.clear();
  order_.reserve(tokens.size());
  std::vector<uint32_t> path;  // the nodes of the last token
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  for (const auto& [bytes, token] : tokens) {
    const auto most = std::min(last.size(), bytes.size());
    const auto common = static_cast<size_t>(
        std::mismatch(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(most), bytes.begin())
            .first -
        last.begin());
    close(common);
    for (size_t at = common; at < bytes.size(); ++at) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(bytes[at]),
                        .depth = static_cast<uint16_t>(at + 1),
                        .first_token = static_cast<uint32_t>(order_.size())});
    }
    order_.push_back(token);
    depth_ = std::max(depth_, static_cast<int>(bytes.size()));
    last = bytes;
  }
  close(0);
  nodes_.push_back({.end = static_cast<uint32_t>(nodes_.size()),
                    .first_token = static_cast<uint32_t>(order_.size())});
  nodes_.shrink_to_fit();
}

}  // namespace wideep::grammar
