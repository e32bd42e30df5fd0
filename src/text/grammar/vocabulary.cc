// SPDX-License-Identifier: Apache-2.0
#include "grammar/vocabulary.h"

#include <utility>

#include "grammar/special_bytes.h"

namespace wideep::grammar {
namespace {

// A token of single bytes could otherwise spell a special one.
bool could_spell_special(std::string_view text) {
  return text.front() != kSpecialBegin ? text.find_first_of("\xfe\xff") != std::string_view::npos
                                       : text.size() < 2 || text.back() != kSpecialEnd;
}

TokenTrie trie_of(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string_view, int32_t>> tokens;
  for (size_t id = 0; id < texts.size(); ++id) {
    if (!texts[id].empty()) tokens.emplace_back(texts[id], static_cast<int32_t>(id));
  }
  return TokenTrie(std::move(tokens));
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> texts, std::vector<int32_t> end_tokens)
    : texts_(std::move(texts)), end_tokens_(std::move(end_tokens)) {
  std::erase_if(end_tokens_, [&](int32_t token) { return token < 0 || token >= size(); });
  for (const int32_t token : end_tokens_) texts_[static_cast<size_t>(token)].clear();
  for (std::string& text : texts_) {
    if (!text.empty() && could_spell_special(text)) text.clear();
  }
  trie_ = trie_of(texts_);
}

Vocabulary Vocabulary::of(const tokenizer::Tokenizer& tokenizer, int size,
                          std::vector<int32_t> end_tokens) {
  std::vector<std::string> texts(static_cast<size_t>(size));
  for (int32_t id = 0; id < std::min(size, tokenizer.id_limit()); ++id) {
    texts[static_cast<size_t>(id)] = tokenizer.is_special(id)
                                         ? special_bytes(tokenizer.id_to_token(id))
                                         : std::string(tokenizer.bytes(id));
  }
  return Vocabulary(std::move(texts), std::move(end_tokens));
}

}  // namespace wideep::grammar
