// SPDX-License-Identifier: Apache-2.0
#include "chat/python_text.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

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

// str.isspace().
bool is_space(std::string_view character) {
  const char32_t c = tokenizer::first_code_point(character);
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

bool contains(const std::vector<std::string_view>& all, std::string_view one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

std::vector<std::string> split_at_space(std::string_view text, int64_t most) {
  std::vector<std::string> parts;
  text = strip(text, Ends::kLeft);
  while (!text.empty()) {
    size_t end = 0;
    for (const std::string_view c : characters(text)) {
      if (is_space(c)) break;
      end += c.size();
    }
    if (most == 0) {
      parts.emplace_back(strip(text, Ends::kRight));
      break;
    }
    --most;
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), Ends::kLeft);
  }
  return parts;
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

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (const std::string_view c : characters(text)) {
    out += in_word ? lower(c) : upper(c);
    in_word = u_isalpha(static_cast<UChar32>(tokenizer::first_code_point(c))) != 0;
  }
  return out;
}

std::string_view strip(std::string_view text, Ends ends, std::optional<std::string_view> removed) {
  const std::vector<std::string_view> set =
      removed ? characters(*removed) : std::vector<std::string_view>();
  const auto goes = [&](std::string_view c) { return removed ? contains(set, c) : is_space(c); };
  const std::vector<std::string_view> all = characters(text);
  auto first = all.begin(), last = all.end();
  if (ends != Ends::kRight) first = std::find_if_not(first, last, goes);
  if (ends != Ends::kLeft) {
    while (last != first && goes(last[-1])) --last;
  }
  if (first == last) return {};
  return {first->data(), static_cast<size_t>(last[-1].data() + last[-1].size() - first->data())};
}

std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t most) {
  if (!separator) return split_at_space(text, most);
  std::vector<std::string> parts;
  for (; most != 0; --most) {
    const size_t end = text.find(*separator);
    if (end == text.npos) break;
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end + separator->size());
  }
  parts.emplace_back(text);
  return parts;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\n\r"), text.size());
    lines.emplace_back(text.substr(0, end));
    const bool two = text.substr(end).starts_with("\r\n");
    text.remove_prefix(std::min(end + (two ? 2 : 1), text.size()));
  }
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t most) {
  std::string out;
  if (from.empty()) {
    for (const std::string_view c : characters(text)) {
      if (most != 0) out += to;
      if (most > 0) --most;
      out += c;
    }
    if (most != 0) out += to;
    return out;
  }
  for (; most != 0; --most) {
    const size_t at = text.find(from);
    if (at == text.npos) break;
    out += std::string(text.substr(0, at)) + std::string(to);
    text.remove_prefix(at + from.size());
  }
  return out + std::string(text);
}

int64_t find(std::string_view text, std::string_view what) {
  const size_t at = text.find(what);
  return at == text.npos ? -1 : static_cast<int64_t>(characters(text.substr(0, at)).size());
}

int64_t count(std::string_view text, std::string_view what) {
  if (what.empty()) return static_cast<int64_t>(characters(text).size()) + 1;
  int64_t found = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) {
    ++found;
  }
  return found;
}

}  // namespace wideep::chat
