// SPDX-License-Identifier: Apache-2.0
//
// A state machine over the places of bare_key_arguments.h with a stack of brackets. Texts are passed
// on as they come; other values wait for their end, because quotes depend on the whole value.
#include "answer/bare_key_arguments.h"

#include <algorithm>

#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::answer {
namespace {

constexpr std::string_view kEnds = ",}]";  // of a value without quotes

// The bytes of the characters that the text begins with.
size_t run_of(std::string_view characters, std::string_view text) {
  return std::min(text.find_first_not_of(characters), text.size());
}

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
}

enum class Surrogate { kNone, kFirst, kSecond };

// Of an escape \uXXXX.
Surrogate surrogate_of(std::string_view escape) {
  const bool is_escape =
      escape.size() == 6 && escape.starts_with("\\u") && is_hex(escape.substr(2));
  if (!is_escape || (escape[2] != 'd' && escape[2] != 'D')) return Surrogate::kNone;
  if (std::string_view("89abAB").find(escape[3]) != std::string_view::npos)
    return Surrogate::kFirst;
  return escape[3] >= '8' ? Surrogate::kSecond : Surrogate::kNone;
}

}  // namespace

size_t BareKeyArguments::take(std::string_view text, bool is_all, AnswerParts& out) {
  for (;;) {
    const Place before = place_;
    const size_t bytes = step(text, is_all, out);
    if (bytes > 0 || is_done_ || place_ == before) return bytes;
  }
}

size_t BareKeyArguments::step(std::string_view text, bool is_all, AnswerParts& out) {
  switch (place_) {
    case Place::kBegin:
      return take_begin(text, is_all, out);
    case Place::kNext:
      return take_next(text, is_all, out);
    case Place::kValue:
      return take_value(text, is_all, out);
    case Place::kBare:
      return take_bare(text, is_all, out);
    case Place::kMarked:
      return take_text(text, is_all, out);
    default:
      return take_json_text(text, is_all, out);
  }
}

size_t BareKeyArguments::take_begin(std::string_view text, bool is_all, AnswerParts& out) {
  Cursor in(text, is_all);
  in.space();
  in.literal("{");
  if (!in.ok()) return 0;
  open('{', out);
  return in.position();
}

size_t BareKeyArguments::take_next(std::string_view text, bool is_all, AnswerParts& out) {
  if (const size_t between = run_of(" \t\r\n,", text); between > 0) return between;
  Cursor in(text, is_all), mark = in;
  const bool ends = mark.optional(call_end_);
  if (mark.wants_more()) return 0;
  if (ends) {
    end(out);
    return 0;
  }
  const char next = in.peek();
  if (!in.ok()) return 0;
  if (next == '}' || next == ']') {
    in.literal(std::string_view(&next, 1));
    close(next, out);
    return in.position();
  }
  if (open_.back() == '{') return take_key(in, out);
  begin_item(out);
  types_ = kAnyType;
  place_ = Place::kValue;
  return in.position();
}

// Up to its value. What is no key is no argument, so that the call has ended before.
size_t BareKeyArguments::take_key(Cursor in, AnswerParts& out) {
  const std::string key = read_key(in);
  if (in.wants_more() || (!in.ok() && is_cut_)) return 0;
  if (!in.ok()) {
    end(out);
    return 0;
  }
  begin_item(out);
  out.add_arguments(quoted_json(key) + ": ");
  types_ = open_.size() == 1 ? tool_.types_of(key) : kAnyType;
  place_ = Place::kValue;
  return in.position();
}

std::string BareKeyArguments::read_key(Cursor& in) const {
  std::string key;
  if (in.optional(quote_)) {
    key = in.until(quote_, Cursor::kMaxNameBytes);
  } else if (in.optional("\"")) {
    key = in.until("\"", Cursor::kMaxNameBytes);
  } else {
    key = trimmed(in.until(":", Cursor::kMaxNameBytes));
    const bool is_key = !key.empty() && key.find_first_of("{}[],<\n") == key.npos;
    if (in.ok() && !is_key) in.fail();
    return key;
  }
  in.space();
  in.literal(":");
  return key;
}

size_t BareKeyArguments::take_value(std::string_view text, bool is_all, AnswerParts& out) {
  if (const size_t space = run_of(" \t\r\n", text); space > 0) return space;
  Cursor in(text, is_all);
  const bool is_text = in.optional(quote_);
  const char next = is_text ? '\0' : in.peek();
  if (!in.ok()) return 0;
  if (is_text || next == '"') {
    if (!is_text) in.literal("\"");
    out.add_arguments("\"");
    place_ = is_text ? Place::kMarked : Place::kJsonText;
  } else if ((next == '{' || next == '[') && open_.size() < formats::kMaxJsonDepth) {
    in.literal(std::string_view(&next, 1));
    open(next, out);
  } else {
    num_without_ = 0;
    place_ = Place::kBare;
  }
  return in.position();
}

size_t BareKeyArguments::take_bare(std::string_view text, bool is_all, AnswerParts& out) {
  size_t end =
      std::min(text.find_first_of(kEnds, num_without_), text.find(call_end_, num_without_));
  num_without_ = text.size() - std::min(text.size(), call_end_.size() - 1);
  if (end == text.npos && (!is_all || is_cut_)) return 0;
  end = std::min(end, text.size());
  out.add_arguments(argument_json(trimmed(text.substr(0, end)), types_));
  place_ = Place::kNext;
  return end;
}

size_t BareKeyArguments::take_text(std::string_view text, bool is_all, AnswerParts& out) {
  const size_t found = text.find(quote_);
  size_t bytes = std::min(found, text.size());
  if (found == text.npos && (!is_all || is_cut_)) bytes -= partial_marker(text, quote_);
  std::string json;
  formats::add_json_characters(text.substr(0, bytes), &json);
  out.add_arguments(json);
  if (found == text.npos) return bytes;
  out.add_arguments("\"");
  place_ = Place::kNext;
  return bytes + quote_.size();
}

// Escapes that JSON does not have stand for themselves.
size_t BareKeyArguments::take_json_text(std::string_view text, bool is_all, AnswerParts& out) {
  const bool is_last = is_all && !is_cut_;
  const size_t special = std::min(text.find_first_of("\"\\"), text.size());
  std::string json;
  formats::add_json_characters(text.substr(0, special), &json);
  out.add_arguments(json);
  if (special > 0 || text.empty()) return special;
  if (text[0] == '"') {
    out.add_arguments("\"");
    place_ = Place::kNext;
    return 1;
  }
  const bool is_unicode = text.substr(1).starts_with('u');
  const bool is_pair = is_unicode && surrogate_of(text.substr(0, 6)) == Surrogate::kFirst;
  const size_t length = is_pair ? 12 : is_unicode ? 6 : 2;
  if (text.size() < length && !is_last) return 0;
  const std::string_view escape = text.substr(0, length);
  if (is_unicode && surrogate_of(escape.substr(0, 6)) != Surrogate::kNone) {
    const bool is_whole = is_pair && surrogate_of(escape.substr(6)) == Surrogate::kSecond;
    out.add_arguments(is_whole ? escape : "\\ufffd");
    return is_whole ? length : 6;
  }
  constexpr std::string_view kNames = "\"\\/bfnrt";
  const bool is_known =
      escape.size() == length &&
      (is_unicode ? is_hex(escape.substr(2)) : kNames.find(escape[1]) != kNames.npos);
  out.add_arguments(is_known ? escape : "\\\\");
  return is_known ? length : 1;
}

void BareKeyArguments::begin_item(AnswerParts& out) {
  if (!is_first_) out.add_arguments(", ");
  is_first_ = false;
}

void BareKeyArguments::open(char bracket, AnswerParts& out) {
  out.add_arguments(std::string_view(&bracket, 1));
  open_ += bracket;
  is_first_ = true;
  place_ = Place::kNext;
}

// One that nothing has opened is left out.
void BareKeyArguments::close(char bracket, AnswerParts& out) {
  const size_t opened = open_.rfind(bracket == '}' ? '{' : '[');
  if (opened == open_.npos) return;
  while (open_.size() > opened) {
    out.add_arguments(open_.back() == '{' ? "}" : "]");
    open_.pop_back();
  }
  is_first_ = false;
  is_done_ = open_.empty();
}

void BareKeyArguments::end(AnswerParts& out) {
  while (!open_.empty()) close(open_.back() == '{' ? '}' : ']', out);
}

void BareKeyArguments::complete(AnswerParts& out) {
  if (place_ == Place::kBegin) open('{', out);
  if (place_ == Place::kMarked || place_ == Place::kJsonText) out.add_arguments("\"");
  if (place_ == Place::kValue || place_ == Place::kBare) {
    out.add_arguments(argument_json("", types_));
  }
  end(out);
}

}  // namespace wideep::answer
