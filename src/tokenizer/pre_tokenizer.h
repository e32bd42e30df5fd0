// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/pattern.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

// Working memory of split(). The pieces are views into it or into the text.
class PreTokenizerScratch {
  friend class PreTokenizer;
  MatchScratch match_;
  std::vector<std::string_view> pieces_;
  std::vector<std::string_view> next_;
  std::deque<std::string>
      prefixed_;  // pieces with an added space; a deque never moves its elements
};

// Cuts a text into the words for byte-pair encoding. Patterns are applied one after the other, each
// to every piece of the one before; a look-ahead does not see beyond the end of its piece. Thread
// safety: immutable after construction; a scratch belongs to one thread.
class PreTokenizer {
 public:
  // GPT-2's pattern, which a ByteLevel pre-tokenizer applies when its use_regex is true.
  static Result<Pattern> gpt2_pattern();

  void add(Pattern pattern) { steps_.emplace_back(std::move(pattern)); }

  // Adds a step that puts a space before each piece that does not start with one.
  void add_prefix_space() { steps_.emplace_back(std::nullopt); }

  // The words of `text`, valid until the next call with this scratch; none is empty.
  // REQUIRES: `text` is valid UTF-8 and outlives them.
  const std::vector<std::string_view>& split(std::string_view text,
                                             PreTokenizerScratch* scratch) const;

 private:
  std::vector<std::optional<Pattern>> steps_;  // nothing: add a space in front
};

}  // namespace wideep::tokenizer
