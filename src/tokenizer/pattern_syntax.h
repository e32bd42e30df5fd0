// SPDX-License-Identifier: Apache-2.0
//
// Translates a regular expression of a tokenizer.json (Oniguruma's syntax, as in the tokenizers
// library) into one with exactly the same meaning for PCRE2 with UTF and UCP.
//
// The two syntaxes are similar but differ in details. So this is an allow list: any element whose
// meaning is not known to be equal is refused by name. Translated:
//   \s \S              to \p{White_Space} and its complement (PCRE2's \s also takes U+180E)
//   \p{..} \P{..}      general categories, plus the code points of newer Unicode versions
//                      (unicode_newer.h)
// Equal in both: literals, escaped punctuation, \r \n \t \f, '.', '|', character classes,
// (..), (?:..), (?=..), (?!..), (?i:..) around ASCII, the quantifiers ? * + (also lazy and
// possessive) and {n}, {n,}, {n,m}.
// Refused: ^ and $ (line anchors in one language, text anchors in the other), \w \d \b \h \v \x,
// scripts, Mn and Mc (one code point moved between them), class operations ('&&', nested or POSIX
// classes), back references, look-behind, letter pairs in (?i:..) that Oniguruma also matches with
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
