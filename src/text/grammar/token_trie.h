// SPDX-License-Identifier: Apache-2.0
//
// Tokens by their bytes, as a tree in one array: a node for each beginning of a token. A walk that
// leaves out what cannot be takes the nodes in order and jumps over what is below one; and over
// what is sure to be, as far as the kinds of bytes below it tell.
//
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace wideep::grammar {

class TokenTrie {
 public:
  struct Node {
    uint8_t byte = 0;             // its last one
    bool ends_character = false;  // if the token begins with one
    uint16_t depth = 0;           // bytes up to it, itself included: from 1 on
    uint16_t kinds_below = 0;     // ByteKind of all bytes below it
    uint32_t end = 0;             // the first node that is not below it
    uint32_t first_token = 0;     // in order(): those of this node, then those below it
  };

  TokenTrie() = default;
  // Tokens without bytes are in no node. Longer ones than 65535 bytes are left out.
  explicit TokenTrie(std::vector<std::pair<std::string_view, int32_t>> tokens);

  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  // Tokens that end in the node.
  std::span<const int32_t> tokens_of(uint32_t node) const {
    return {order_.data() + nodes_[node].first_token,
            nodes_[node + 1].first_token - nodes_[node].first_token};
  }
  // Those that end in it or below it.
  std::span<const int32_t> tokens_from(uint32_t node) const {
    return {order_.data() + nodes_[node].first_token,
            nodes_[nodes_[node].end].first_token - nodes_[node].first_token};
  }
  bool empty() const { return nodes_.size() <= 1; }
  size_t num_tokens() const { return order_.size(); }
  int depth() const { return depth_; }  // of the deepest node
  size_t bytes() const { return nodes_.size() * sizeof(Node) + order_.size() * sizeof(int32_t); }

 private:
  std::vector<Node> nodes_ = std::vector<Node>(1);  // and one more behind them
  std::vector<int32_t> order_;
  int depth_ = 0;
};

}  // namespace wideep::grammar
