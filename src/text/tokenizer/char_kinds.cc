// SPDX-License-Identifier: Apache-2.0
//
// The tokenizers library has tables of different Unicode versions for different steps, and a model
// was trained with what they say. ICU's tables are the base; from them later characters are taken
// away (by age), and added where the library is newer, as are the few that have changed their
// category.
#include "tokenizer/char_kinds.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "tokenizer/unicode_newer.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

bool is_in(std::span<const Range> ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

// Categories as a mask of ICU's.
uint32_t mask_of(char32_t c) { return U_MASK(u_charType(static_cast<UChar32>(c))); }

// Unicode versions are compared as the first byte of ICU's.
bool is_of_version(char32_t c, uint8_t version) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] <= version;
}

// "" for a character that the installed tables may already have.
std::string_view newer_category(char32_t c) {
  for (const CategoryRange& range : newer_categories()) {
    if (c >= range.first && c <= range.last) return range.category;
  }
  return "";
}

// Digits of Unicode 17: Tolong Siki, and Chinese marks for counting.
constexpr Range kNumbers17[] = {{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}};

// Characters that were of the category in the version that counts, and no longer are.
constexpr Range kPunctuationOnce[] = {{0x166D, 0x166D}, {0x111C9, 0x111C9}};
constexpr Range kMarksOnce[] = {{0x1CF2, 0x1CF3}};
constexpr char32_t kMarkSinceUnicode11 = 0x111C9;

// Pairs of cases of Unicode 16 and 17.
struct CaseRange {
  char32_t first;
  char32_t last;
  char32_t lower;  // of the first
};
constexpr CaseRange kNewerCases[] = {{0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x0264},
                                     {0xA7CC, 0xA7CC, 0xA7CD},    {0xA7CE, 0xA7CE, 0xA7CF},
                                     {0xA7D2, 0xA7D2, 0xA7D3},    {0xA7D4, 0xA7D4, 0xA7D5},
                                     {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x019B},
                                     {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB}};

}  // namespace

bool is_white_space(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0; }

bool is_word_character(char32_t c) {
  const auto code_point = static_cast<UChar32>(c);
  if (u_hasBinaryProperty(code_point, UCHAR_ALPHABETIC) != 0 ||
      (mask_of(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
      u_hasBinaryProperty(code_point, UCHAR_JOIN_CONTROL) != 0) {
    return true;
  }
  const std::string_view category = newer_category(c);
  return category.starts_with('L') || category.starts_with('M') || category == "Nd" ||
         category == "Nl";
}

bool is_numeric(char32_t c) {
  return (mask_of(c) & U_GC_N_MASK) != 0 || newer_category(c).starts_with('N') ||
         is_in(kNumbers17, c);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c != 0x7F && u_isalnum(static_cast<UChar32>(c)) == 0;
  return ((mask_of(c) & U_GC_P_MASK) != 0 && is_of_version(c, 8)) || is_in(kPunctuationOnce, c);
}

bool is_mark(char32_t c) {
  if (c == kMarkSinceUnicode11) return false;
  return ((mask_of(c) & U_GC_M_MASK) != 0 && is_of_version(c, 9)) || is_in(kMarksOnce, c);
}

void append_lower_case(char32_t c, std::string* out) {
  if (c == 0x130) {
    *out += "i\u0307";
    return;
  }
  for (const CaseRange& range : kNewerCases) {
    if (c >= range.first && c <= range.last) return append_utf8(range.lower + c - range.first, out);
  }
  append_utf8(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))), out);
}

}  // namespace wideep::tokenizer
