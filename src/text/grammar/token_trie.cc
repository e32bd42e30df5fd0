// SPDX-License-Identifier: Apache-2.0
#include "grammar/token_trie.h"

#include <algorithm>
#include <limits>

#include "grammar/byte_kinds.h"

namespace wideep::grammar {
namespace {

// A node on the way to the last token.
struct Place {
  uint32_t node = 0;
  CharacterRest rest = {};
  bool is_broken = false;  // it, or one before it, is no UTF-8
  uint16_t kind = 0;
};

}  // namespace

TokenTrie::TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens) {
  std::erase_if(tokens, [](const auto& token) {
    return token.first.empty() || token.first.size() > std::numeric_limits<uint16_t>::max();
  });
  std::ranges::sort(tokens);  // bytes as unsigned numbers
  nodes_.clear();
  order_.reserve(tokens.size());
  std::vector<Place> path;
  std::string_view last;
  const auto close = [&](size_t depth) {
    while (path.size() > depth) {
      const Place place = path.back();
      path.pop_back();
      Node& node = nodes_[place.node];
      node.end = static_cast<uint32_t>(nodes_.size());
      if (!path.empty()) nodes_[path.back().node].kinds_below |= node.kinds_below | place.kind;
    }
  };
  const auto add = [&](uint8_t byte) {
    Place place = path.empty() ? Place{} : path.back();
    place.is_broken = place.is_broken || !place.rest.take(byte);
    place.kind = place.is_broken ? kBrokenBytes : byte < 0x80 ? ascii_kind(byte) : kCharacters;
    place.node = static_cast<uint32_t>(nodes_.size());
    path.push_back(place);
    nodes_.push_back({.byte = byte,
                      .ends_character = !place.is_broken && place.rest.is_whole(),
                      .depth = static_cast<uint16_t>(path.size()),
                      .first_token = static_cast<uint32_t>(order_.size())});
  };
  for (const auto& [bytes, token] : tokens) {
    size_t common = 0;
    while (common < std::min(last.size(), bytes.size()) && last[common] == bytes[common]) ++common;
    close(common);
    for (size_t at = common; at < bytes.size(); ++at) add(static_cast<uint8_t>(bytes[at]));
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
