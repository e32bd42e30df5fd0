// SPDX-License-Identifier: Apache-2.0
#include "answer/arguments.h"

#include <algorithm>

#include "formats/json_text.h"

namespace wideep::answer {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }

std::string quoted(std::string_view text) {
  std::string json = "\"";
  formats::add_json_characters(text, &json);
  return json + '"';
}

// The beginning of an argument, up to its value: `{"name": ` or `, "name": `.
void begin_argument(std::string_view name, bool is_first, AnswerParts& out) {
  out.add_arguments((is_first ? "{" : ", ") + quoted(name) + ": ");
}

}  // namespace

std::unique_ptr<Arguments> Arguments::make(const CallFormat& format, const Tool& tool) {
  switch (format.form) {
    case ArgumentsForm::kTags:
      return std::make_unique<TaggedArguments>(format.tags, tool);
    case ArgumentsForm::kPython:
      return std::make_unique<PythonArguments>();
    default:
      return std::make_unique<JsonArguments>(format.call_end);
  }
}

size_t JsonArguments::take(std::string_view text, bool is_all, AnswerParts& out) {
  if (!is_json_) return take_raw(text, is_all, out);
  size_t passed = 0, at = 0;
  for (; at < text.size() && !is_done_; ++at) {
    if (walker_.in_string() && is_control(text[at])) {
      out.add_arguments(text.substr(passed, at - passed));
      std::string escaped;
      formats::add_json_characters(text.substr(at, 1), &escaped);
      out.add_arguments(escaped);
      passed = at + 1;
    }
    const JsonWalker::Step step = walker_.push(text[at]);
    is_done_ = step == JsonWalker::Step::kEnd;
    if (step != JsonWalker::Step::kWrong) continue;
    is_json_ = false;
    break;
  }
  out.add_arguments(text.substr(passed, at - passed));
  return at > 0 || is_json_ ? at : take_raw(text, is_all, out);
}

size_t JsonArguments::take_raw(std::string_view text, bool is_all, AnswerParts& out) {
  const size_t found = end_.empty() ? text.npos : text.find(end_);
  is_done_ = found != text.npos;
  size_t bytes = std::min(found, text.size());
  if (!is_done_ && !is_all && !end_.empty()) bytes -= partial_marker(text, end_);
  out.add_arguments(text.substr(0, bytes));
  return bytes;
}

// ---- tags ----

size_t TaggedArguments::take(std::string_view text, bool is_all, AnswerParts& out) {
  for (;;) {
    const Place before = place_;
    const size_t bytes =
        place_ == Place::kBetween ? take_between(text, is_all, out) : take_value(text, is_all, out);
    if (bytes > 0 || is_done_ || place_ == before) return bytes;
  }
}

size_t TaggedArguments::take_between(std::string_view text, bool is_all, AnswerParts& out) {
  Cursor end(text, is_all);
  end.space();
  end.literal(tags_.call_end);
  if (end.wants_more()) return 0;
  if (end.ok()) {
    out.add_arguments(has_any_ ? "}" : "{}");
    is_done_ = true;
    return end.position();
  }
  Cursor in(text, is_all);
  in.space();
  in.literal(tags_.key_begin);
  std::string_view key = in.until(tags_.key_end, Cursor::kMostNameBytes);
  if (!tags_.value_begin.empty()) in.space();
  in.literal(tags_.value_begin);
  if (in.wants_more()) return 0;
  if (!in.ok()) {  // what follows is no argument, so that the call has ended before
    out.add_arguments(has_any_ ? "}" : "{}");
    is_done_ = true;
    return 0;
  }
  types_ = tool_.types_of(trimmed(key));
  if (tags_.says_whether_text) {
    const size_t quote = std::min(key.find('"'), key.size());
    const bool is_text = key.find("string=\"true", quote) != key.npos;
    key = key.substr(0, quote);
    types_ = is_text ? kText : kAnyType;
  }
  begin_argument(trimmed(key), !has_any_, out);
  has_any_ = true;
  if (types_ == kText) out.add_arguments("\"");
  place_ = Place::kValueBegin;
  return in.position();
}

// A value ends with its tag, or with that of the call where its own is missing.
size_t TaggedArguments::take_value(std::string_view text, bool is_all, AnswerParts& out) {
  if (place_ == Place::kValueBegin) {
    place_ = Place::kValue;
    if (tags_.strips_line_feeds && text.starts_with('\n')) return 1;
  }
  const size_t own = text.find(tags_.value_end), of_call = text.find(tags_.call_end);
  if (const size_t found = std::min(own, of_call); found != text.npos) {
    std::string_view value = text.substr(0, found);
    if (tags_.strips_line_feeds && value.ends_with('\n')) value.remove_suffix(1);
    add_to_value(value, out);
    end_value(out);
    return found + (own < of_call ? tags_.value_end.size() : 0);
  }
  size_t certain = text.size();
  if (!is_all) {
    certain -=
        std::max(partial_marker(text, tags_.value_end), partial_marker(text, tags_.call_end));
    if (tags_.strips_line_feeds && certain > 0 && text[certain - 1] == '\n') --certain;
  }
  add_to_value(text.substr(0, certain), out);
  return certain;
}

void TaggedArguments::add_to_value(std::string_view text, AnswerParts& out) {
  if (types_ != kText) {
    value_ += text;
    return;
  }
  std::string json;
  formats::add_json_characters(text, &json);
  out.add_arguments(json);
}

void TaggedArguments::end_value(AnswerParts& out) {
  out.add_arguments(types_ == kText ? "\"" : argument_json(value_, types_));
  value_.clear();
  place_ = Place::kBetween;
}

void TaggedArguments::complete(AnswerParts& out) {
  if (place_ != Place::kBetween) end_value(out);
  out.add_arguments(has_any_ ? "}" : "{}");
}

// ---- Python ----

size_t PythonArguments::take(std::string_view text, bool is_all, AnswerParts& out) {
  if (!in_value_) return take_name(text, is_all, out);
  size_t end = 0;
  while (end < text.size() && !scanner_.ends_at(text[end])) ++end;
  value_ += text.substr(0, end);
  if (end == text.size()) return end;
  end_value(out);
  return end > 0 ? end : take_name(text, is_all, out);
}

// From the comma to the "=", or the call's end.
size_t PythonArguments::take_name(std::string_view text, bool is_all, AnswerParts& out) {
  Cursor in(text, is_all);
  in.space();
  if (has_any_ && in.optional(",")) in.space();
  std::string_view name;
  const bool ends = in.peek() == ')';
  if (ends) {
    in.literal(")");
  } else {
    name = in.word();
    in.space();
    in.literal("=");
    in.peek();
  }
  if (in.wants_more()) return 0;
  if (ends || !in.ok()) {  // what follows is no argument, so that the call has ended before
    out.add_arguments(has_any_ ? "}" : "{}");
    is_done_ = true;
    return ends ? in.position() : 0;
  }
  begin_argument(name, !has_any_, out);
  has_any_ = in_value_ = true;
  scanner_ = {};
  return in.position();
}

void PythonArguments::end_value(AnswerParts& out) {
  // JSON's escapes are not all Python's.
  const std::string_view value = trimmed(value_);
  const std::optional<std::string> json =
      is_json(value) ? std::string(value) : python_literal_json(value);
  out.add_arguments(json ? *json : quoted(value));
  value_.clear();
  in_value_ = false;
}

void PythonArguments::complete(AnswerParts& out) {
  if (in_value_) end_value(out);
  out.add_arguments(has_any_ ? "}" : "{}");
}

}  // namespace wideep::answer
