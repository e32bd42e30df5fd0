// SPDX-License-Identifier: Apache-2.0
#include "chat/python_text.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <cstring>

#include "chat/value.h"
#include "tokenizer/utf8.h"

namespace wideep::chat {
namespace {

icu::UnicodeString wide(std::string_view text) {
  return icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
}

std::string narrow(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

// The characters for which Python's str.isspace() is true.
bool is_space(std::string_view character) {
  const char32_t c = tokenizer::first_code_point(character);
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

// The position of the first white space, or the size.
size_t end_of_word(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && !is_space(text.substr(end))) {
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

}  // namespace

std::string upper(std::string_view text) {
  return narrow(wide(text).toUpper(icu::Locale::getRoot()));
}
std::string lower(std::string_view text) {
  return narrow(wide(text).toLower(icu::Locale::getRoot()));
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = tokenizer::first_unit(text).bytes;
  return upper(text.substr(0, first)) + lower(text.substr(first));
}

// A word begins at every letter that does not follow a letter, as in Python: "it's" becomes "It'S".
std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (const std::string_view c : Characters(text)) {
    out += in_word ? lower(c) : upper(c);
    in_word = u_isalpha(static_cast<UChar32>(tokenizer::first_code_point(c))) != 0;
  }
  return out;
}

std::string_view strip(std::string_view text, Ends ends, std::optional<std::string_view> removed) {
  std::vector<std::string_view> set;
  if (removed) set.assign(Characters(*removed).begin(), Characters(*removed).end());
  std::sort(set.begin(), set.end());  // for the binary search: a template may give a large set
  const auto is_removed = [&](std::string_view c) {
    return removed ? std::binary_search(set.begin(), set.end(), c) : is_space(c);
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

std::vector<std::string> split_lines(std::string_view text, Budget& budget) {
  std::vector<std::string> lines;
  while (!text.empty() && budget.spend(1)) {
    const size_t end = std::min(text.find_first_of("\n\r"), text.size());
    lines.emplace_back(text.substr(0, end));
    const bool two = text.substr(end).starts_with("\r\n");
    text.remove_prefix(std::min(end + (two ? 2 : 1), text.size()));
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

int64_t find(std::string_view text, std::string_view what) {
  const size_t at = position_in(text, what);
  return at == text.npos ? -1 : Characters(text.substr(0, at)).count();
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

}  // namespace wideep::chat
