// SPDX-License-Identifier: Apache-2.0
//
// The patterns of a pre-tokenizer, which cut a text into pieces.
//
//   WIDEEP_TRY_ASSIGN(Pattern pattern, Pattern::from_regex("\\p{N}{1,3}"));
//   MatchScratch scratch;
//   pattern.split("year 2024!", &scratch, &pieces);   // "year ", "202", "4", "!"
//
// Thread safety: a Pattern is immutable and may be shared; a MatchScratch belongs to one thread.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/split_behavior.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

// Working memory of split(), reused from match to match; and the work that is left for it. Patterns
// of files that are in use take a step for each byte of a text, or a few; one whose parts can match
// the same characters in many ways may take the square of a text's length, or more. So a scratch
// allows so many steps for each byte that it was given: what they do not find is no match.
class MatchScratch {
 public:
  MatchScratch();
  pcre2_match_data* get() const { return data_.get(); }
  pcre2_match_context* context() const { return context_.get(); }

  // Every text that is looked through.
  void add_text(std::string_view text) { steps_left_ += kStepsPerByte * text.size(); }
  // Whether so many steps were left; else it exceeds() from now on.
  bool spend(uint64_t steps);
  bool exceeds() const { return exceeds_; }
  // For other texts.
  void reset();

 private:
  struct FreeContext {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  // Long runs of white space take four of the patterns in use.
  static constexpr uint64_t kStepsPerByte = 64, kStepsAtFirst = 1 << 14;

  std::unique_ptr<pcre2_match_context, FreeContext> context_;
  uint64_t steps_left_ = kStepsAtFirst;
  bool exceeds_ = false;
  struct Free {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  std::unique_ptr<pcre2_match_data, Free> data_;
};

class Pattern {
 public:
  // A regular expression of Oniguruma's syntax (see pattern_syntax.h). Errors (invalid input): not
  // supported, or it matches the empty text, which would cut between all characters.
  static Result<Pattern> from_regex(std::string_view regex);

  // Matches exactly these characters. Errors (invalid input): empty.
  static Result<Pattern> from_literal(std::string_view literal);

  // Appends the matches and the text between them to `pieces`, from left to right (the tokenizers
  // library's behavior "Isolated"). Pieces are views into `text`; none is empty, and their
  // concatenation is `text`. REQUIRES: `text` is valid UTF-8.
  void split(std::string_view text, MatchScratch* scratch,
             std::vector<std::string_view>* pieces) const;

  // Appends the matches and the text between them. invert: what is between counts as the match.
  // REQUIRES: `text` is valid UTF-8.
  void find_all(std::string_view text, bool invert, MatchScratch* scratch,
                std::vector<Stretch>* stretches) const;

  // Replaces each match by `content`. REQUIRES: `text` is valid UTF-8.
  std::string replace_all(std::string_view text, std::string_view content,
                          MatchScratch* scratch) const;

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  using Code = std::unique_ptr<pcre2_code, Free>;
  using MatchFunction = decltype(&pcre2_match);

  Pattern(Code code, MatchFunction match) : code_(std::move(code)), match_(match) {}
  // in_file: the pattern as the tokenizer's file has it, for messages.
  static Result<Pattern> compile(std::string_view pattern, std::string_view in_file,
                                 uint32_t options);
  bool find(std::string_view text, size_t start, MatchScratch* scratch) const;
  bool find_slowly(std::string_view text, size_t start, MatchScratch* scratch) const;

  Code code_;
  MatchFunction match_;  // pcre2_jit_match if the pattern was compiled to machine code
};

}  // namespace wideep::tokenizer
