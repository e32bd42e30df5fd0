// SPDX-License-Identifier: Apache-2.0
//
// General categories of the code points that were added by Unicode 15.0, 15.1 and 16.0.
//
// The tokenizers library matches patterns with Oniguruma, which has the tables of Unicode 16. The
// installed PCRE2 may be older (Debian 12: Unicode 14), so these ranges are added to every \p{...};
// for a newer PCRE2 they change nothing. pattern_test.cc compares every code point with Oniguruma.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string_view>

namespace wideep::tokenizer {

struct CategoryRange {
  char32_t first;
  char32_t last;              // inclusive
  std::string_view category;  // "Lo", "Nd", ...
};

// In ascending order. Source: the difference of UnicodeData.txt between Unicode 14.0 and 16.0.
std::span<const CategoryRange> newer_categories();

}  // namespace wideep::tokenizer
