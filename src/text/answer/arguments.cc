// SPDX-License-Identifier: Apache-2.0
//
// Both readers pass on what is certain and keep their place between calls. JSON is passed on byte
// by byte as the walker agrees; after the first byte that it does not, the rest goes raw up to the
// mark that ends the call. A Python value is collected to its end, because only then is known
// whether it is a literal, or text to be quoted.
#include "answer/arguments.h"

#include <algorithm>

#include "formats/json_text.h"

namespace wideep::answer {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }

}  // namespace

std::string quoted_json(std::string_view text) {
  std::string json = "\"";
  formats::add_json_characters(text, &json);
  return json + '"';
}

void begin_argument(std::string_view name, bool is_first, AnswerParts& out) {
  out.add_arguments((is_first ? "{" : ", ") + quoted_json(name) + ": ");
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
  out.add_arguments(json ? *json : quoted_json(value));
  value_.clear();
  in_value_ = false;
}

void PythonArguments::complete(AnswerParts& out) {
  if (in_value_) end_value(out);
  out.add_arguments(has_any_ ? "}" : "{}");
}

}  // namespace wideep::answer
