// SPDX-License-Identifier: Apache-2.0
//
// The patterns of a pre-tokenizer: where a text is cut into pieces.
//
//   WIDEEP_TRY_ASSIGN(Pattern pattern, Pattern::from_regex("\\p{N}{1,3}"));
//   MatchScratch scratch;
//   pattern.split("year 2024!", &scratch, &pieces);   // "year ", "202", "4", "!"
//
// Thread safety: a Pattern is constant and may be shared; a MatchScratch belongs to one thread.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <string_view>
#include <vector>

#include "wideep/status.h"

namespace wideep::tokenizer {

// Memory that matching needs; reused from one match to the next.
class MatchScratch {
 public:
  MatchScratch();
  pcre2_match_data* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  std::unique_ptr<pcre2_match_data, Free> data_;
};

class Pattern {
 public:
  // An Oniguruma expression (see pattern_syntax.h). Errors (invalid input): not understood, or it
  // matches the empty text, which would cut between all characters.
  static Result<Pattern> from_regex(std::string_view regex);

  // Exactly these characters. Errors (invalid input): empty.
  static Result<Pattern> from_literal(std::string_view literal);

  // Appends to `pieces` the matches, left to right, and the text between them (the tokenizers
  // library's behavior "Isolated"). Pieces are views into `text`, none is empty, and together they
  // are `text`. REQUIRES: `text` is valid UTF-8.
  void split(std::string_view text, MatchScratch* scratch,
             std::vector<std::string_view>* pieces) const;

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  using Code = std::unique_ptr<pcre2_code, Free>;
  using MatchFunction = decltype(&pcre2_match);

  Pattern(Code code, MatchFunction match) : code_(std::move(code)), match_(match) {}
  static Result<Pattern> compile(std::string_view pattern, uint32_t options);
  bool find(std::string_view text, size_t start, pcre2_match_data* data) const;

  Code code_;
  MatchFunction match_;  // pcre2_jit_match where the pattern could be compiled to machine code
};

}  // namespace wideep::tokenizer
