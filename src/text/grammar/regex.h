// SPDX-License-Identifier: Apache-2.0
//
// Regular expressions as expressions over bytes. What is taken: characters, `.`, classes, groups
// (their names and numbers have no use), `|`, `* + ? {m} {m,} {m,n}` and their lazy forms (which
// match the same texts), `^` and `$` (also \A, \Z, \z) at the ends of the pattern or of its
// alternatives, look-ahead, (?=…) and (?!…), where all that follows it is the rest of the pattern,
// and the escapes \d \w \s \D \W \S \t \n \r \f \v \0 \xHH \uHHHH \u{H…}, and of any sign. Refused
// by name: look-behind, \1, \b inside a text, flags, possessive repeats and \p{…}, and what
// dialects read differently: a{,3}, a{ 3 }, [[:alpha:]], \012, a class that begins with ].
//
// Where ECMA-262, Python and RE2 differ (`.` and line ends, \s), what is generated matches all of
// them; \d and \w are ASCII, as in ECMA-262.
//
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <string_view>

#include "grammar/expression.h"
#include "wideep/status.h"

namespace wideep::grammar {

struct RegexOptions {
  // How characters are written in the text; null: as they are.
  std::function<Expression(const CharacterRanges&)> characters;
  // The pattern may be anywhere in the text, unless ^ and $ say otherwise (JSON Schema); else it is
  // all of it.
  bool searches = false;
};

// Errors (invalid input): "at byte 5: …". Bounded in depth; build_grammar() bounds the rest.
Result<Expression> parse_regex(std::string_view pattern, const RegexOptions& options = {});

}  // namespace wideep::grammar
