// SPDX-License-Identifier: Apache-2.0
//
// Each step first asks whether the one before was decided. A step that fails for lack of text asks
// for more, unless no text follows: then it fails. A number is read as the element of a list, since
// nothing in it says where it ends.
#include "answer/cursor.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "answer/json_walker.h"
#include "tokenizer/utf8.h"

namespace wideep::answer {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':' || c == '/';
}

}  // namespace

std::string_view Cursor::take(size_t bytes) {
  const std::string_view taken = text_.substr(at_, bytes);
  at_ += bytes;
  return taken;
}

void Cursor::literal(std::string_view expected) {
  if (!ok() || optional(expected) || !ok()) return;
  fail();
}

bool Cursor::optional(std::string_view expected) {
  if (!ok()) return false;
  if (rest().starts_with(expected)) {
    take(expected.size());
    return true;
  }
  if (!is_all_ && expected.starts_with(rest())) need_more();
  return false;
}

void Cursor::expect_either(std::string_view a, std::string_view b) {
  if (!ok() || rest().starts_with(a) || rest().starts_with(b)) return;
  if (a.starts_with(rest()) || b.starts_with(rest())) return need_more();
  fail();
}

void Cursor::space() {
  if (ok()) take(std::min(rest().find_first_not_of(kSpace), rest().size()));
}

char Cursor::peek() {
  if (ok() && rest().empty()) need_more();
  return ok() ? rest().front() : '\0';
}

std::string_view Cursor::until(std::string_view end, size_t max) {
  if (!ok()) return {};
  const std::string_view seen = rest().substr(0, max + end.size());
  const size_t found = seen.find(end);
  if (found != seen.npos) {
    const std::string_view text = take(found);
    take(end.size());
    return text;
  }
  seen.size() < max + end.size() ? need_more() : fail();
  return {};
}

std::string_view Cursor::word() {
  if (!ok()) return {};
  const std::string_view seen = rest().substr(0, kMaxNameBytes + 1);
  const auto length =
      static_cast<size_t>(std::find_if_not(seen.begin(), seen.end(), is_word) - seen.begin());
  if (length == 0 && !seen.empty()) fail();
  if (length > kMaxNameBytes) fail();
  // The word may go on, but not beyond the end of the answer.
  if (length == seen.size() && (length == 0 || !is_all_)) need_more();
  return ok() ? take(length) : std::string_view();
}

std::string_view Cursor::json() {
  const char first = peek();
  if (!ok()) return {};
  // In a list, for a number's end.
  const bool is_number = first == '-' || (first >= '0' && first <= '9');
  JsonWalker walker;
  if (is_number) walker.push('[');
  const std::string_view text = rest();
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_number && std::string_view(",]} \t\r\n").find(text[i]) != std::string_view::npos) {
      // Whether it is complete shows with the list's end.
      if (walker.push(']') == JsonWalker::Step::kEnd) return take(i);
      break;
    }
    const JsonWalker::Step step = walker.push(text[i]);
    if (step == JsonWalker::Step::kEnd) return take(i + 1);
    if (step == JsonWalker::Step::kWrong) break;
    if (i + 1 == text.size()) {
      need_more();
      return {};
    }
  }
  fail();
  return {};
}

std::string json_string_text(std::string_view json) {
  std::string text;
  json = json.substr(1, json.size() - 2);
  const auto unit_at = [&](size_t at) {  // of \uXXXX; 0: there is none
    uint32_t unit = 0;
    if (json.substr(at, 2) != "\\u") return unit;
    std::from_chars(json.data() + at + 2, json.data() + at + 6, unit, 16);
    return unit;
  };
  for (size_t at = 0; at < json.size(); ++at) {
    if (json[at] != '\\') {
      text += json[at];
      continue;
    }
    constexpr std::string_view kNames = "bfnrt", kValues = "\b\f\n\r\t";
    if (json[at + 1] != 'u') {
      const char name = json[++at];
      const size_t found = kNames.find(name);
      text += found == kNames.npos ? name : kValues[found];
      continue;
    }
    const uint32_t unit = unit_at(at), next = unit_at(at + 6);
    const bool is_pair = unit >> 10 == 0xd800 >> 10 && next >> 10 == 0xdc00 >> 10;
    const bool is_alone = !is_pair && unit >> 11 == 0xd800 >> 11;
    const uint32_t pair = 0x10000 + ((unit & 0x3ff) << 10) + (next & 0x3ff);
    tokenizer::append_utf8(is_pair ? pair : is_alone ? 0xfffd : unit, &text);
    at += is_pair ? 11 : 5;
  }
  return text;
}

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

size_t find_first(std::string_view text, std::span<const std::string_view> markers, size_t from) {
  std::string first_bytes;
  for (const std::string_view marker : markers) {
    if (first_bytes.find(marker.front()) == first_bytes.npos) first_bytes += marker.front();
  }
  for (from = text.find_first_of(first_bytes, from); from != text.npos;
       from = text.find_first_of(first_bytes, from + 1)) {
    const std::string_view rest = text.substr(from);
    const auto begins = [&](std::string_view marker) { return rest.starts_with(marker); };
    if (std::ranges::any_of(markers, begins)) break;
  }
  return from;
}

size_t partial_marker(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(marker.size() - 1, text.size()); n > 0; --n) {
    if (text.ends_with(marker.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace wideep::answer
