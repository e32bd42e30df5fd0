// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <utility>

namespace wideep::tokenizer {

Result<Pattern> PreTokenizer::gpt2_pattern() {
  return Pattern::from_regex(
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
}

const std::vector<std::string_view>& PreTokenizer::split(std::string_view text,
                                                         PreTokenizerScratch* scratch) const {
  auto& pieces = scratch->pieces_;
  pieces.clear();
  scratch->prefixed_.clear();
  if (!text.empty()) pieces.push_back(text);
  for (const std::optional<Pattern>& pattern : steps_) {
    scratch->next_.clear();
    for (const std::string_view piece : pieces) {
      if (pattern.has_value()) {
        pattern->split(piece, &scratch->match_, &scratch->next_);
      } else if (piece.starts_with(' ')) {
        scratch->next_.push_back(piece);
      } else {
        scratch->next_.push_back(scratch->prefixed_.emplace_back(" ").append(piece));
      }
    }
    std::swap(pieces, scratch->next_);
  }
  return pieces;
}

}  // namespace wideep::tokenizer
