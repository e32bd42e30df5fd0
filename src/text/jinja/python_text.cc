// SPDX-License-Identifier: Apache-2.0
//
// Cases come from ICU's tables in the root locale, since the machine's locale must not change a
// prompt. White space is Python's own list, as Unicode's property lacks U+001C to U+001F. A word is
// lowered as a whole, because the form of a sigma depends on its neighbours. Templates and texts
// come from outside, so that searches take linear time (memmem) or are charged for what they take
// at worst.
#include "jinja/python_text.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <cstring>

#include "jinja/value.h"
#include "tokenizer/utf8.h"

namespace wideep::jinja {
namespace {

icu::UnicodeString wide(std::string_view text) {
  return icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
}

std::string narrow(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

bool is_space_at(std::string_view text) { return is_space(tokenizer::first_code_point(text)); }

// The position of the first white space, or the size.
size_t end_of_word(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && !is_space_at(text.substr(end))) {
    end += tokenizer::first_unit(text.substr(end)).bytes;
  }
  return end;
}

// Python's split() without a separator: no part is empty, and the part after the last allowed split
// keeps its white space at the end.
std::vector<std::string> split_at_space(std::string_view text, int64_t limit, Budget& budget) {
  std::vector<std::string> parts;
  text = strip(text, Ends::kLeft);
  for (; !text.empty() && budget.spend(1); --limit) {
    const size_t end = limit == 0 ? text.size() : end_of_word(text);
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), Ends::kLeft);
  }
  return parts;
}

size_t bytes_of_last(std::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() && (text[text.size() - bytes] & 0xC0) == 0x80) ++bytes;
  return bytes;
}

size_t start_of_last_word(std::string_view text) {
  size_t start = text.size();
  while (start > 0) {
    const size_t bytes = bytes_of_last(text.substr(0, start));
    if (is_space_at(text.substr(start - bytes))) break;
    start -= bytes;
  }
  return start;
}

struct LineEnd {
  size_t at;
  size_t bytes;  // 0: the text has no further line
};
LineEnd line_end(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = tokenizer::first_unit(text.substr(at)).bytes;
    const char32_t c = tokenizer::first_code_point(text.substr(at));
    if (text.substr(at).starts_with("\r\n")) return {at, 2};
    const bool ends = (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (ends) return {at, bytes};
    at += bytes;
  }
  return {text.size(), 0};
}

}  // namespace

std::string upper(std::string_view text) {
  return narrow(wide(text).toUpper(icu::Locale::getRoot()));
}
std::string lower(std::string_view text) {
  return narrow(wide(text).toLower(icu::Locale::getRoot()));
}

// A character's title case may be several: "ß" becomes "Ss".
std::string title_case(std::string_view character) {
  icu::UnicodeString text = wide(character);
  return narrow(text.toTitle(nullptr, icu::Locale::getRoot(), U_TITLECASE_NO_BREAK_ADJUSTMENT));
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = tokenizer::first_unit(text).bytes;
  // Lowered as a whole: the form of a sigma depends on what is before it.
  return title_case(text.substr(0, first)) +
         lower(text).substr(lower(text.substr(0, first)).size());
}

bool is_cased(std::string_view character) {
  return u_hasBinaryProperty(static_cast<UChar32>(tokenizer::first_code_point(character)),
                             UCHAR_CASED) != 0;
}

// What decides whether a sigma near the end of a word is final: all that has no effect on it, and
// the character behind that.
size_t bytes_after_sigma(std::string_view text) {
  size_t end = 0;
  bool is_ignored = true;
  while (is_ignored && end < text.size()) {
    const char32_t c = tokenizer::first_code_point(text.substr(end));
    is_ignored = u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASE_IGNORABLE) != 0;
    end += tokenizer::first_unit(text.substr(end)).bytes;
  }
  return end;
}

// A word begins at every cased character that does not follow one, as in Python: "it's" becomes
// "It'S".
std::string title(std::string_view text) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t first = tokenizer::first_unit(text.substr(at)).bytes;
    size_t end = at + first;
    // A word is lowered as a whole: the form of a sigma depends on what follows it.
    while (is_cased(text.substr(at)) && end < text.size() && is_cased(text.substr(end))) {
      end += tokenizer::first_unit(text.substr(end)).bytes;
    }
    const bool has_sigma = text.substr(at, end - at).find("\u03A3") != text.npos;
    const size_t after = has_sigma ? bytes_after_sigma(text.substr(end)) : 0;
    std::string word = lower(text.substr(at, end + after - at));
    word.resize(word.size() - lower(text.substr(end, after)).size());
    out += title_case(text.substr(at, first)) + word.substr(lower(text.substr(at, first)).size());
    at = end;
  }
  return out;
}

bool is_digit(char32_t c) {
  const auto kind = u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE);
  return kind == U_NT_DECIMAL || kind == U_NT_DIGIT;
}
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

// No control or format character, no unassigned one, and no white space but the space.
bool is_printable(char32_t c) {
  if (c == ' ') return true;
  constexpr uint32_t kUnprintable =
      U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CS_MASK | U_GC_CO_MASK | U_GC_CN_MASK | U_GC_Z_MASK;
  return (U_MASK(u_charType(static_cast<UChar32>(c))) & kUnprintable) == 0;
}

bool all_characters(std::string_view text, bool (*has)(char32_t)) {
  const Characters all(text);
  return !text.empty() && std::all_of(all.begin(), all.end(), [&](std::string_view c) {
    return has(tokenizer::first_code_point(c));
  });
}

std::string_view strip(std::string_view text, Ends ends, std::optional<std::string_view> removed) {
  std::vector<std::string_view> set;
  if (removed) set.assign(Characters(*removed).begin(), Characters(*removed).end());
  std::sort(set.begin(), set.end());  // for the binary search: a template may give a large set
  const auto is_removed = [&](std::string_view c) {
    return removed ? std::binary_search(set.begin(), set.end(), c) : is_space_at(c);
  };
  while (ends != Ends::kRight && !text.empty()) {
    const size_t bytes = tokenizer::first_unit(text).bytes;
    if (!is_removed(text.substr(0, bytes))) break;
    text.remove_prefix(bytes);
  }
  while (ends != Ends::kLeft && !text.empty()) {
    const size_t bytes = bytes_of_last(text);
    if (!is_removed(text.substr(text.size() - bytes))) break;
    text.remove_suffix(bytes);
  }
  return text;
}

std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t limit, Budget& budget) {
  if (!separator) return split_at_space(text, limit, budget);
  std::vector<std::string> parts;
  for (; limit != 0 && budget.spend(1); --limit) {
    const size_t end = position_in(text, *separator);
    if (end == text.npos) break;
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end + separator->size());
  }
  parts.emplace_back(text);
  return parts;
}

std::vector<std::string> split_from_end(std::string_view text,
                                        std::optional<std::string_view> separator, int64_t limit,
                                        Budget& budget) {
  std::vector<std::string> parts;
  if (!separator) text = strip(text, Ends::kRight);
  // Each part is searched once from its end, so that all of the text is searched once in total.
  if (separator && last_position_in(text, *separator, budget) == text.npos) limit = 0;
  for (; limit != 0 && !text.empty() && budget.spend(1); --limit) {
    const size_t at = separator ? text.rfind(*separator) : start_of_last_word(text);
    if (at == text.npos || (!separator && at == 0)) break;
    parts.emplace_back(text.substr(at + (separator ? separator->size() : 0)));
    text = separator ? text.substr(0, at) : strip(text.substr(0, at), Ends::kRight);
  }
  if (separator || !text.empty()) parts.emplace_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, Budget& budget, bool keeps_ends) {
  std::vector<std::string> lines;
  while (!text.empty() && budget.spend(1)) {
    const LineEnd end = line_end(text);
    lines.emplace_back(text.substr(0, end.at + (keeps_ends ? end.bytes : 0)));
    text.remove_prefix(end.at + end.bytes);
  }
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit, Budget& budget) {
  std::string out;
  // One step for each replacement, and the bytes that it adds.
  for (; limit != 0 && budget.spend_bytes(64 + to.size()); --limit) {
    const size_t at = from.empty() ? 0 : position_in(text, from);
    if (at == text.npos) break;
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
    if (!from.empty()) continue;
    // An empty `from` matches again only after the next code point.
    if (text.empty()) break;
    const size_t bytes = tokenizer::first_unit(text).bytes;
    out += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return out.append(text);
}

// memmem takes linear time; string_view::find may take the product of both sizes.
size_t position_in(std::string_view text, std::string_view what) {
  if (what.empty()) return 0;
  const void* found =
      text.empty() ? nullptr : ::memmem(text.data(), text.size(), what.data(), what.size());
  if (found == nullptr) return text.npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t last_position_in(std::string_view text, std::string_view what, Budget& budget) {
  return budget.spend_bytes(text.size() * (1 + what.size() / 64)) ? text.rfind(what) : text.npos;
}

int64_t count(std::string_view text, std::string_view what) {
  if (what.empty()) return Characters(text).count() + 1;
  int64_t found = 0;
  for (size_t at = position_in(text, what); at != text.npos; at = position_in(text, what)) {
    text.remove_prefix(at + what.size());
    ++found;
  }
  return found;
}

}  // namespace wideep::jinja
