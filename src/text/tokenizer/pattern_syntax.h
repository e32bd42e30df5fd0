// SPDX-License-Identifier: Apache-2.0
//
// Translates a regular expression of a tokenizer (Oniguruma's syntax, as in the tokenizers library,
// or fancy-regex's, as in tiktoken, which agree on all that is taken here) into one with exactly
// the same meaning for PCRE2 with UTF and UCP.
//
// The two syntaxes are similar but differ in details. So this is an allow list: any element whose
// meaning is not known to be equal is refused by name. Translated:
//   \s \S              to \p{White_Space} and its complement (PCRE2's \s also takes U+180E)
//   \p{..} \P{..} \d   general categories and the script Han, plus the code points of newer Unicode
//                      versions (unicode_newer.h)
//   [..&&..] [..[..]]  to ranges of characters (character_set.h)
//   \s+$               where it is the whole expression: white space before a line's end
//   N{1,3}(?=(?:N{3})*(?!N)) as the whole expression, \p{N} for N: digits in threes from the right
//   (?:L M*(?: L M*)*)+ at the end of an alternative, \p{L} for L: words with spaces between them
// Equal in both: literals, escaped punctuation, \r \n \t \f, '.', '|', character classes,
// (..), (?:..), (?=..), (?!..), (?i:..) around ASCII, the quantifiers ? * + (also lazy and
// possessive) and {n}, {n,}, {n,m}.
// Refused: ^ and $ elsewhere (line anchors in one language, text anchors in the other), \w \b \h
// \v \x, other scripts, Mn and Mc (one code point moved between them), POSIX classes, back
// references, look-behind, letter pairs in (?i:..) that Oniguruma also matches with
// one character ('ss' and U+00DF), and quantified groups other than (..)?: without those, matching
// needs neither deep recursion nor exponential time.
#pragma once

#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::tokenizer {

// REQUIRES: regex is valid UTF-8.
// Errors (invalid input) name the refused element and its byte. Thread safe.
Result<std::string> to_pcre2_syntax(std::string_view regex);

}  // namespace wideep::tokenizer
