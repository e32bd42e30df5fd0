// SPDX-License-Identifier: Apache-2.0
//
// One pass over the source, alternating between text and tags. White space around a tag belongs to
// the text, so a tag decides about text on both sides:
//   - '-' at its begin or end removes all white space there, '+' keeps it;
//   - lstrip_blocks: white space before a block or comment tag is removed if the tag is the first
//     thing on its line (line_starts_);
//   - trim_blocks: one newline after a block or comment tag is removed.
#include "jinja/template_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/try.h"
#include "tokenizer/utf8.h"

namespace wideep::jinja {
namespace {

constexpr std::string_view kSpace = " \t\n\r\f\v";

bool is_space(char c) { return kSpace.find(c) != kSpace.npos; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool in_name(char c) { return starts_name(c) || is_digit(c); }

// Writes "\r\n" and "\r" as "\n" and removes one newline at the end, as Jinja does.
std::string with_plain_newlines(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    const bool carriage_return = source[i] == '\r';
    if (carriage_return && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += carriage_return ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view source) : text_(with_plain_newlines(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size()) WIDEEP_TRY(step());
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // Takes the text up to the next tag, and the tag.
  Status step() {
    const size_t begin = next_tag(at_);
    const char kind = begin == text_.npos ? '\0' : text_[begin + 1];
    const char sign = begin == text_.npos ? '\0' : char_at(begin + 2);
    add_data(begin == text_.npos ? text_.size() : begin, kind, sign);
    if (begin == text_.npos) return {};
    advance_to(begin + 2 + (sign == '-' || sign == '+' ? 1 : 0));
    if (kind == '#') return skip_comment();
    if (kind == '%' && next_name() == "raw") return take_raw();
    add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kPrintBegin, text_.substr(begin, 2));
    return take_tag(kind == '%' ? "%}" : "}}");
  }

  size_t next_tag(size_t from) const {
    for (size_t i = text_.find('{', from); i != text_.npos; i = text_.find('{', i + 1)) {
      const char next = char_at(i + 1);
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return text_.npos;
  }

  // Adds the text before a tag of this kind ('%', '{', '#') and sign, without the white space that
  // the tag removes.
  void add_data(size_t end, char kind, char sign) {
    std::string_view data(text_.data() + at_, end - at_);
    if (sign == '-') {
      data = data.substr(0, data.find_last_not_of(kSpace) + 1);
    } else if (sign != '+' && (kind == '%' || kind == '#')) {
      const size_t line = data.rfind('\n') + 1;  // 0 if there is none
      const bool starts_line = line > 0 || line_starts_;
      if (starts_line && data.find_first_not_of(kSpace, line) == data.npos) {
        data = data.substr(0, line);
      }
    }
    if (!data.empty()) add(TokenKind::kData, std::string(data));
    advance_to(end);
  }

  Status skip_comment() {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) return complain("the comment has no end: expected '#}'");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    advance_to(end + 2);
    skip_after_block(sign);
    return {};
  }

  // As in Jinja, a newline after "{% raw %}" stays and one after "{% endraw %}" is removed.
  Status take_raw() {
    WIDEEP_TRY_ASSIGN(const char begin_sign, take_tag_words("raw"));
    if (begin_sign == '+') return complain("'+' at the end of '{% raw %}' is not supported");
    skip_after_print(begin_sign);
    for (size_t tag = text_.find("{%", at_); tag != text_.npos; tag = text_.find("{%", tag + 1)) {
      const char sign = char_at(tag + 2);
      const size_t word =
          text_.find_first_not_of(kSpace, tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (word == text_.npos || text_.compare(word, 6, "endraw") != 0) continue;
      add_data(tag, '%', sign);
      advance_to(word);
      WIDEEP_TRY_ASSIGN(const char end_sign, take_tag_words("endraw"));
      skip_after_block(end_sign);
      return {};
    }
    return complain("raw has no end: expected '{% endraw %}'");
  }

  // Takes the rest of "{% word %}" after its first sign. Returns the sign at its end, or '\0'.
  Result<char> take_tag_words(std::string_view word) {
    advance_to(text_.find(word, at_) + word.size());
    const size_t end = text_.find_first_not_of(kSpace, at_);
    const char sign = end == text_.npos ? '\0' : text_[end];
    const size_t close = end == text_.npos ? end : end + (sign == '-' || sign == '+' ? 1 : 0);
    if (close == text_.npos || text_.compare(close, 2, "%}") != 0) {
      return complain(fmt::format("expected '%}}' after '{}'", word));
    }
    advance_to(close + 2);
    return close > end ? sign : '\0';
  }

  // Inside brackets "}}" closes two dicts, not the tag, and "%}" cannot close it either.
  Status take_tag(std::string_view close) {
    int open_brackets = 0;
    for (;;) {
      advance_to(std::min(text_.find_first_not_of(kSpace, at_), text_.size()));
      if (at_ >= text_.size())
        return complain(fmt::format("the tag has no end: expected '{}'", close));
      const char sign = text_[at_] == '-' || text_[at_] == '+' ? text_[at_] : '\0';
      const size_t end = at_ + (sign != '\0' ? 1 : 0);
      if (open_brackets == 0 && text_.compare(end, 2, close) == 0) {
        add(close == "%}" ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, std::string(close));
        advance_to(end + 2);
        close == "%}" ? skip_after_block(sign) : skip_after_print(sign);
        return {};
      }
      WIDEEP_TRY(take_token(&open_brackets));
    }
  }

  // After a block or comment tag: trim_blocks removes one newline, unless the sign is '+'.
  void skip_after_block(char sign) {
    if (sign == '-') {
      skip_after_print(sign);
    } else {
      line_starts_ = sign != '+' && char_at(at_) == '\n';
      if (line_starts_) advance_to(at_ + 1);
    }
  }

  // After a print tag only '-' removes white space.
  void skip_after_print(char sign) {
    line_starts_ = false;
    if (sign != '-') return;
    const size_t next = std::min(text_.find_first_not_of(kSpace, at_), text_.size());
    line_starts_ = next > at_ && text_[next - 1] == '\n';
    advance_to(next);
  }

  Status take_token(int* open_brackets) {
    const char c = text_[at_];
    if (starts_name(c)) {
      size_t end = at_;
      while (end < text_.size() && in_name(text_[end])) ++end;
      return take(TokenKind::kName, end);
    }
    if (is_digit(c)) return take_number();
    if (c == '\'' || c == '"') return take_string(c);
    return take_operator(open_brackets);
  }

  Status take_number() {
    size_t end = at_;
    const auto digits = [&] {
      while (is_digit(char_at(end)) || (char_at(end) == '_' && is_digit(char_at(end + 1)))) ++end;
    };
    digits();
    // A dot that no digit follows is an attribute access, and so is one after an index (x.0.1).
    const bool is_index = at_ > 0 && text_[at_ - 1] == '.';
    bool is_float = !is_index && char_at(end) == '.' && is_digit(char_at(end + 1));
    if (is_float) {
      ++end;
      digits();
    }
    if (const char c = char_at(end); c == 'e' || c == 'E') {
      const size_t sign = char_at(end + 1) == '-' || char_at(end + 1) == '+' ? 1 : 0;
      if (is_digit(char_at(end + 1 + sign))) {
        is_float = true;
        end += 1 + sign;
        digits();
      }
    }
    Token& token =
        add(is_float ? TokenKind::kFloat : TokenKind::kInteger, text_.substr(at_, end - at_));
    std::erase(token.text, '_');
    advance_to(end);
    return {};
  }

  Status take_string(char quote) {
    std::string value;
    size_t i = at_ + 1;
    while (i < text_.size() && text_[i] != quote) {
      if (text_[i] != '\\') {
        value += text_[i++];
      } else if (!take_escape(&i, &value)) {
        return complain("a string has an incomplete or invalid escape");
      }
    }
    if (i >= text_.size()) return complain("a string has no end");
    add(TokenKind::kString, value);
    advance_to(i + 1);
    return {};
  }

  // Takes an escape by Python's rules; *i is at its backslash. False: incomplete or no code point.
  bool take_escape(size_t* i, std::string* value) const {
    constexpr std::string_view kFrom = "ntrbfav0\\'\"", kTo = {"\n\t\r\b\f\a\v\0\\'\"", 11};
    const char c = char_at(*i + 1);
    const size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : (c == 'U' ? 8 : 0));
    if (digits > 0) {
      char32_t code = 0;
      for (size_t d = 0; d < digits; ++d) {
        const char digit = char_at(*i + 2 + d);
        if (std::isxdigit(static_cast<unsigned char>(digit)) == 0) return false;
        code = code * 16 +
               static_cast<char32_t>(is_digit(digit) ? digit - '0' : (digit | 32) - 'a' + 10);
      }
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
      tokenizer::append_utf8(code, value);
      *i += 2 + digits;
      return true;
    }
    const size_t known = kFrom.find(c);
    if (c == '\n') {
      // A backslash before a newline continues the string on the next line.
    } else if (known != kFrom.npos) {
      *value += kTo[known];
    } else {
      *value += {'\\', c};
    }
    *i += 2;
    return *i <= text_.size();
  }

  Status take_operator(int* open_brackets) {
    constexpr std::array<std::string_view, 7> kTwo = {"//", "**", "==", "!=", ">=", "<=", "=="};
    constexpr std::string_view kOne = "+-/*%~[](){}<>=.:|,";
    const std::string two = text_.substr(at_, 2);
    if (std::find(kTwo.begin(), kTwo.end(), two) != kTwo.end()) {
      return take(TokenKind::kOperator, at_ + 2);
    }
    // take_tag() needs the number of open brackets: see there.
    const char c = text_[at_];
    if (kOne.find(c) == kOne.npos) return complain(fmt::format("unexpected character '{}'", c));
    if (std::string_view("([{").find(c) != std::string_view::npos) ++*open_brackets;
    if (std::string_view(")]}").find(c) != std::string_view::npos && --*open_brackets < 0) {
      return complain(fmt::format("unexpected '{}'", c));
    }
    return take(TokenKind::kOperator, at_ + 1);
  }

  // ---- helpers ----

  char char_at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

  std::string next_name() const {
    size_t begin = at_;
    while (is_space(char_at(begin))) ++begin;
    size_t end = begin;
    while (in_name(char_at(end))) ++end;
    return text_.substr(begin, end - begin);
  }

  void advance_to(size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<ptrdiff_t>(at_),
                                         text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end;
  }

  Token& add(TokenKind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), line_});
    return tokens_.back();
  }

  Status take(TokenKind kind, size_t end) {
    add(kind, text_.substr(at_, end - at_));
    advance_to(end);
    return {};
  }

  Status complain(const std::string& what) const {
    return invalid_input(fmt::format("line {}: {}", line_, what));
  }

  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // whether only removed white space precedes at_ on its line
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize_template(std::string_view source) {
  if (!tokenizer::is_valid_utf8(source)) return invalid_input("line 1: the text is not UTF-8");
  return Tokenizer(source).run();
}

}  // namespace wideep::jinja
