// SPDX-License-Identifier: Apache-2.0
//
// A trie over bytes, and a table of first bytes in front of it. Details follow the tokenizers
// library, because ids must be equal: the search goes on behind a token that single_word has
// refused, and white space that lstrip and rstrip claim belongs to the token that claims it first.
#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "tokenizer/char_kinds.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

size_t spaces_before(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const std::string_view left = text.substr(0, text.size() - bytes);
    const char32_t last = last_code_point(left);
    if (!is_white_space(last)) break;
    bytes += last < 0x80 ? 1 : last < 0x800 ? 2 : 3;  // all white space is below U+10000
  }
  return bytes;
}

size_t spaces_after(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size() && is_white_space(first_code_point(text.substr(bytes)))) {
    bytes += first_unit(text.substr(bytes)).bytes;
  }
  return bytes;
}

bool stands_alone(std::string_view before, std::string_view after) {
  return (before.empty() || !is_word_character(last_code_point(before))) &&
         (after.empty() || !is_word_character(first_code_point(after)));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (size_t i = 0; i < tokens_.size(); ++i) insert(static_cast<int32_t>(i));
}

void AddedTokenFinder::insert(int32_t token) {
  const std::string& content = tokens_[static_cast<size_t>(token)].content;
  starts_[static_cast<uint8_t>(content[0])] = true;
  uint32_t at = 0;
  for (const char byte : content) {
    auto& children = nodes_[at].children;
    const auto child = std::find_if(children.begin(), children.end(),
                                    [byte](const auto& entry) { return entry.first == byte; });
    if (child != children.end()) {
      at = child->second;
      continue;
    }
    at = static_cast<uint32_t>(nodes_.size());
    children.emplace_back(byte, at);
    nodes_.emplace_back();
  }
  if (nodes_[at].token < 0) nodes_[at].token = token;
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text) const {
  int32_t longest = -1;
  uint32_t at = 0;
  for (const char byte : text) {
    const auto& children = nodes_[at].children;
    const auto child = std::find_if(children.begin(), children.end(),
                                    [byte](const auto& entry) { return entry.first == byte; });
    if (child == children.end()) break;
    at = child->second;
    if (nodes_[at].token >= 0) longest = nodes_[at].token;
  }
  return longest < 0 ? nullptr : &tokens_[static_cast<size_t>(longest)];
}

void AddedTokenFinder::split(std::string_view text, std::vector<Segment>* segments) const {
  size_t done = 0;  // text before it already belongs to a segment
  size_t at = 0;
  while (at < text.size()) {
    // Most bytes start no token: the table avoids a walk of the trie for them.
    const AddedToken* token =
        starts_[static_cast<uint8_t>(text[at])] ? longest_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t start = at;
    size_t stop = at + token->content.size();
    // As in the tokenizers library, the search continues after the token, even if single_word
    // refuses the match.
    at = stop;
    const std::string_view before = text.substr(0, start);
    const std::string_view after = text.substr(stop);
    if (token->single_word && !stands_alone(before, after)) continue;
    if (token->lstrip) start -= spaces_before(before);
    if (token->rstrip) stop += spaces_after(after);
    // White space between two tokens may already belong to the first one (rstrip). A token that is
    // itself such white space has nothing left and is none, as in the library.
    if (token->lstrip && stop <= done) continue;
    if (start > done) segments->push_back({Segment::kText, text.substr(done, start - done)});
    segments->push_back({token->id, {}});
    done = stop;
  }
  if (done < text.size()) segments->push_back({Segment::kText, text.substr(done)});
}

}  // namespace wideep::tokenizer
