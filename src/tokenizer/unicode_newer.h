// SPDX-License-Identifier: Apache-2.0
//
// General categories of the code points that Unicode 15.0, 15.1 and 16.0 assigned.
//
// The tokenizers library matches patterns with Oniguruma, whose tables are those of Unicode 16. The
// installed PCRE2 may be older (Debian 12: Unicode 14), so patterns get these ranges added to every
// \p{...}; to a PCRE2 that knows them already they add nothing. The whole of the result is compared
// with Oniguruma, code point by code point, in pattern_test.cc.
#pragma once

#include <span>
#include <string_view>

namespace wideep::tokenizer {

struct CategoryRange {
  char32_t first;
  char32_t last;              // inclusive
  std::string_view category;  // "Lo", "Nd", ...
};

// In ascending order. Source: UnicodeData.txt of Unicode 16.0 against that of 14.0.
std::span<const CategoryRange> newer_categories();

}  // namespace wideep::tokenizer
