// SPDX-License-Identifier: Apache-2.0
//
// The tokens of a model as what they add to a text.
//
// Thread safety: immutable.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/token_trie.h"
#include "tokenizer/tokenizer.h"

namespace wideep::grammar {

class Vocabulary {
 public:
  // texts: [tokens] the bytes of each; of special tokens special_bytes() of the name; "": the token
  // has none and is never sampled. end_tokens: end an answer, have no text.
  Vocabulary(std::vector<std::string> texts, std::vector<int32_t> end_tokens);

  // Of a model with so many tokens.
  static Vocabulary of(const tokenizer::Tokenizer& tokenizer, int size,
                       std::vector<int32_t> end_tokens);

  int size() const { return static_cast<int>(texts_.size()); }
  std::string_view text(int32_t token) const {
    return token >= 0 && token < size() ? texts_[static_cast<size_t>(token)] : std::string_view();
  }
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  bool is_end(int32_t token) const {
    return std::ranges::find(end_tokens_, token) != end_tokens_.end();
  }
  const TokenTrie& trie() const { return trie_; }

 private:
  std::vector<std::string> texts_;
  std::vector<int32_t> end_tokens_;
  TokenTrie trie_;
};

}  // namespace wideep::grammar
