// SPDX-License-Identifier: Apache-2.0
//
// A recursive descent that writes JSON while it reads, of bounded depth. Numbers are those of JSON
// with an optional plus, checked by is_json(): whatever else Python takes (underscores, complex
// numbers, names) is no literal here, and the caller quotes it as text.
#include "answer/python_literal.h"

#include <charconv>
#include <cstdint>

#include "answer/cursor.h"
#include "answer/json_walker.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"
#include "tokenizer/utf8.h"

namespace wideep::answer {
namespace {

// Recursive descent; every function returns whether it could read, and appends to out_.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  std::optional<std::string> read() {
    if (!value(0) || !skip_space() || at_ != text_.size()) return std::nullopt;
    return std::move(out_);
  }

 private:
  // Always true, to stand between steps.
  bool skip_space() {
    constexpr std::string_view kSpace = " \t\r\n";
    while (at_ < text_.size() && kSpace.find(text_[at_]) != kSpace.npos) ++at_;
    return true;
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool takes(char byte) {
    skip_space();
    if (peek() != byte) return false;
    ++at_;
    return true;
  }

  bool value(size_t depth) {
    skip_space();
    if (depth > formats::kMaxJsonDepth) return false;
    switch (peek()) {
      case '\'':
      case '"':
        return text();
      case '[':
        return list(']', depth);
      case '(':
        return list(')', depth);
      case '{':
        return dict(depth);
      default:
        return word();
    }
  }

  bool word() {
    const size_t end = std::min(text_.find_first_of(",:]}) \t\r\n", at_), text_.size());
    std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    if (word == "None" || word == "null") return write("null");
    if (word == "True" || word == "true") return write("true");
    if (word == "False" || word == "false") return write("false");
    if (word.starts_with('+')) word.remove_prefix(1);
    const bool is_number = !word.empty() && word.find_first_of("\"[{tfn") == word.npos;
    return is_number && is_json(word) && write(word);
  }

  bool list(char end, size_t depth) {
    ++at_;
    out_ += '[';
    for (bool first = true; !takes(end); first = false) {
      if (!first && !(takes(',') && write(", "))) return false;
      if (!first && takes(end)) {  // a comma after the last one
        out_.resize(out_.size() - 2);
        break;
      }
      if (!value(depth + 1)) return false;
    }
    return write("]");
  }

  bool dict(size_t depth) {
    ++at_;
    out_ += '{';
    for (bool first = true; !takes('}'); first = false) {
      if (!first && !(takes(',') && write(", "))) return false;
      if (!first && takes('}')) {
        out_.resize(out_.size() - 2);
        break;
      }
      skip_space();
      const bool is_text = peek() == '\'' || peek() == '"';
      if (!is_text || !text() || !takes(':') || !write(": ") || !value(depth + 1)) return false;
    }
    return write("}");
  }

  bool text() {
    const char quote = text_[at_++];
    std::string characters;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\') {
        if (!escape(&characters)) return false;
      } else {
        characters += text_[at_];
      }
    }
    if (at_++ >= text_.size()) return false;
    out_ += '"';
    formats::add_json_characters(tokenizer::replace_invalid_utf8(characters), &out_);
    return write("\"");
  }

  // At a backslash; stays at the last byte of the sequence. One that Python does not know stands
  // for itself, as in Python.
  bool escape(std::string* characters) {
    if (at_ + 1 >= text_.size()) return false;
    const char name = text_[++at_];
    constexpr std::string_view kNames = "abfnrtv0", kValues("\a\b\f\n\r\t\v\0", 8);
    const size_t digits = name == 'x' ? 2 : name == 'u' ? 4 : name == 'U' ? 8 : 0;
    if (digits > 0) {
      uint32_t code = 0;
      const char* begin = text_.data() + at_ + 1;
      if (at_ + digits >= text_.size()) return false;
      if (std::from_chars(begin, begin + digits, code, 16).ptr != begin + digits) return false;
      at_ += digits;
      const bool is_character = code < 0x110000 && code >> 11 != 0xd800 >> 11;
      tokenizer::append_utf8(is_character ? code : 0xfffd, characters);
    } else if (const size_t found = kNames.find(name); found != kNames.npos) {
      *characters += kValues[found];
    } else if (name != '\n') {  // a line that goes on
      if (name != '\\' && name != '\'' && name != '"') *characters += '\\';
      *characters += name;
    }
    return true;
  }

  bool write(std::string_view text) {
    out_ += text;
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::optional<std::string> python_literal_json(std::string_view text) {
  return Literal(text).read();
}

bool PythonScanner::ends_at(char byte) {
  if (quote_ != '\0') {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (byte == '\\') {
      is_escaped_ = true;
    } else if (byte == quote_) {
      quote_ = '\0';
    }
    return false;
  }
  if (depth_ == 0 && (byte == ',' || byte == ')')) return true;
  if (byte == '"' || byte == '\'') quote_ = byte;
  if (byte == '(' || byte == '[' || byte == '{') ++depth_;
  if (depth_ > 0 && (byte == ')' || byte == ']' || byte == '}')) --depth_;
  return false;
}

}  // namespace wideep::answer
