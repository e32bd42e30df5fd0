// SPDX-License-Identifier: Apache-2.0
//
// From a tokenizer.json's regular expression (Oniguruma, as in the tokenizers library) to one that
// means exactly the same to PCRE2 with UTF and UCP.
//
// The two languages look alike and differ in detail, so this is an allow list: what is not known to
// mean the same is refused by name. Known and translated:
//   \s \S              to \p{White_Space} and its complement (PCRE2's \s also takes U+180E)
//   \p{..} \P{..}      general categories, plus the code points of newer Unicode versions
//                      (unicode_newer.h)
// Known and the same: literals, escaped punctuation, \r \n \t \f, '.', '|', character classes,
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
// Errors (invalid input): what is refused and at which byte.
Result<std::string> to_pcre2_syntax(std::string_view regex);

}  // namespace wideep::tokenizer
