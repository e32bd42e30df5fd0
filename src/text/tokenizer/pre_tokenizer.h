// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/pattern.h"
#include "tokenizer/split_behavior.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

// Working memory of split(). The pieces are views into it or into the text.
class PreTokenizerScratch {
 public:
  // A pattern has taken too much work.
  bool exceeds() const { return match_.exceeds(); }

 private:
  friend class PreTokenizer;
  MatchScratch match_;
  std::vector<std::string_view> pieces_;
  std::vector<std::string_view> next_;
  std::vector<Stretch> stretches_;
  std::deque<std::string> changed_;  // texts of pieces; a deque never moves its elements
};

// The steps of a pre-tokenizer.
struct SplitStep {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what is between matches counts as the match
};
struct CharacterSplitStep {  // each character of a kind is a match
  bool (*is_match)(char32_t);
  SplitBehavior behavior;
};
struct WordsStep {};        // runs of word characters, and of others without white space
struct PrefixSpaceStep {};  // puts a space before each piece that does not start with one
enum class PrependScheme { kAlways, kFirst, kNever };
struct MetaspaceStep {
  std::string replacement;  // one character, in place of spaces
  // Where a piece gets one in front, unless it starts with it: kFirst at the start of the text.
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;  // cut before each replacement
};
using PreTokenizerStep =
    std::variant<SplitStep, CharacterSplitStep, WordsStep, PrefixSpaceStep, MetaspaceStep>;

// Cuts a text into the words for byte-pair encoding. Steps are applied one after the other, each to
// every piece of the one before; a look-ahead does not see beyond the end of its piece. Thread
// safety: immutable after construction; a scratch belongs to one thread.
class PreTokenizer {
 public:
  // GPT-2's pattern, which a ByteLevel pre-tokenizer applies when its use_regex is true.
  static Result<Pattern> gpt2_pattern();

  void add(PreTokenizerStep step) { steps_.push_back(std::move(step)); }
  // The same for a pattern whose matches are pieces.
  void add(Pattern pattern) { add(SplitStep{.pattern = std::move(pattern)}); }

  // The words of `text`, valid until the next call with this scratch; none is empty. starts: it is
  // the start of the whole text, not what follows an added token.
  // REQUIRES: `text` is valid UTF-8 and outlives them.
  const std::vector<std::string_view>& split(std::string_view text, bool starts,
                                             PreTokenizerScratch* scratch) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace wideep::tokenizer
