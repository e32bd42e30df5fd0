// SPDX-License-Identifier: Apache-2.0
#include "jinja/text_wrap.h"

#include <algorithm>
#include <cstddef>

#include "base/try.h"
#include "jinja/python_text.h"
#include "jinja/value.h"
#include "tokenizer/utf8.h"

namespace wideep::jinja {
namespace {

// Of textwrap: only ASCII's white space separates words.
bool separates(char32_t c) { return (c >= 0x09 && c <= 0x0d) || c == ' '; }
bool is_word(char32_t c) { return c == '_' || is_alphanumeric(c); }
bool is_letter(char32_t c) { return is_word(c) && !is_decimal(c); }
bool is_word_or_mark(char32_t c) {
  return is_word(c) || (c < 0x80 && std::string_view("!\"'&.,?").find(static_cast<char>(c)) !=
                                        std::string_view::npos);
}

// Code points [begin, end) of the text.
struct Chunk {
  size_t begin;
  size_t end;

  size_t size() const { return end - begin; }
};

// Splits a text into words and the white space between them, as textwrap's regular expression does.
class Splitter {
 public:
  explicit Splitter(const std::vector<char32_t>& text) : text_(text), hyphens_(text.size() + 1) {
    for (size_t i = text.size(); i > 0; --i) {
      hyphens_[i - 1] = text[i - 1] == '-' ? hyphens_[i] + 1 : 0;
    }
  }

  std::vector<Chunk> chunks(bool at_hyphens) const {
    std::vector<Chunk> all;
    for (size_t at = 0; at < text_.size(); at = all.back().end) {
      all.push_back({at, at_hyphens ? end_of_part(at) : end_of_run(at)});
    }
    return all;
  }

 private:
  bool fits(size_t at, bool (*holds)(char32_t)) const {
    return at < text_.size() && holds(text_[at]);
  }
  bool is_hyphen(size_t at) const { return at < text_.size() && hyphens_[at] > 0; }

  // Of white space, or of anything else.
  size_t end_of_run(size_t at) const {
    const bool space = separates(text_[at]);
    while (at < text_.size() && separates(text_[at]) == space) ++at;
    return at;
  }

  // Two hyphens or more between words.
  bool is_dash(size_t at) const {
    return at > 0 && is_word_or_mark(text_[at - 1]) && at < text_.size() && hyphens_[at] >= 2 &&
           fits(at + hyphens_[at], is_word);
  }

  // A hyphen after which a word may be split: "a" of "re-a" must not stand alone.
  bool splits_after(size_t at) const {
    if (!is_hyphen(at) || at < 2) return false;
    const bool after_letters = is_letter(text_[at - 2]) && is_letter(text_[at - 1]);
    const bool after_hyphen =
        at >= 3 && is_letter(text_[at - 3]) && is_hyphen(at - 2) && is_word_or_mark(text_[at - 1]);
    const size_t second = is_hyphen(at + 2) ? at + 3 : at + 2;
    return (after_letters || after_hyphen) && fits(at + 1, is_letter) && fits(second, is_letter);
  }

  size_t end_of_part(size_t at) const {
    if (separates(text_[at])) return end_of_run(at);
    if (is_dash(at)) return at + hyphens_[at];
    for (++at; at < text_.size() && !separates(text_[at]); ++at) {
      if (splits_after(at)) return at + 1;
      if (is_dash(at)) break;
    }
    return at;
  }

  const std::vector<char32_t>& text_;
  std::vector<size_t> hyphens_;  // how many stand at and after each position
};

class Wrapper {
 public:
  Wrapper(std::string_view text, const WrapStyle& style) : style_(style) {
    for (const std::string_view c : Characters(text)) {
      parts_.push_back(c);
      text_.push_back(tokenizer::first_code_point(c));
    }
  }

  Result<std::vector<std::string>> run(Budget& budget) {
    chunks_ = Splitter(text_).chunks(style_.splits_at_hyphens);
    std::vector<std::string> lines;
    for (next_ = 0; next_ < chunks_.size();) {
      if (!budget.spend(1)) return budget.status();
      // No line but the first begins with white space.
      if (is_blank(chunks_[next_]) && !lines.empty()) ++next_;
      WIDEEP_TRY_ASSIGN(std::vector<Chunk> line, next_line());
      if (!line.empty() && is_blank(line.back())) line.pop_back();
      if (!line.empty()) lines.push_back(text_of(line));
    }
    return lines;
  }

 private:
  bool is_blank(const Chunk& chunk) const {
    return std::all_of(text_.begin() + static_cast<ptrdiff_t>(chunk.begin),
                       text_.begin() + static_cast<ptrdiff_t>(chunk.end), is_space);
  }

  Result<std::vector<Chunk>> next_line() {
    std::vector<Chunk> line;
    size_t size = 0;
    for (; next_ < chunks_.size(); ++next_) {
      if (static_cast<double>(size + chunks_[next_].size()) > style_.width) break;
      size += chunks_[next_].size();
      line.push_back(chunks_[next_]);
    }
    if (next_ < chunks_.size() && static_cast<double>(chunks_[next_].size()) > style_.width) {
      WIDEEP_TRY(take_long_word(line, size));
    }
    return line;
  }

  Status take_long_word(std::vector<Chunk>& line, size_t size) {
    Chunk& word = chunks_[next_];
    if (!style_.breaks_long_words) {
      if (line.empty()) line.push_back(chunks_[next_++]);
      return {};
    }
    if (style_.width >= 1 && !style_.is_whole) {
      return invalid_input("width: expected an integer, found float");
    }
    const size_t left = style_.width < 1 ? 1 : static_cast<size_t>(style_.width) - size;
    const size_t cut =
        word.begin + (style_.breaks_long_at_hyphens ? after_hyphen(word, left) : left);
    // The part may be empty: then the white space before it stays, as in Python.
    line.push_back({word.begin, cut});
    word.begin = cut;
    return {};
  }

  // The position after the last of the hyphens within `left` code points, unless there are only
  // hyphens before it.
  size_t after_hyphen(const Chunk& word, size_t left) const {
    for (size_t i = left; i-- > 1;) {
      if (text_[word.begin + i] != '-') continue;
      const auto begin = text_.begin() + static_cast<ptrdiff_t>(word.begin);
      const bool only = std::all_of(begin, begin + static_cast<ptrdiff_t>(i),
                                    [](char32_t c) { return c == '-'; });
      return only ? left : i + 1;
    }
    return left;
  }

  std::string text_of(const std::vector<Chunk>& line) const {
    std::string out;
    for (const Chunk& chunk : line) {
      for (size_t i = chunk.begin; i < chunk.end; ++i) out += parts_[i];
    }
    return out;
  }

  const WrapStyle& style_;
  std::vector<std::string_view> parts_;  // the code points
  std::vector<char32_t> text_;
  std::vector<Chunk> chunks_;
  size_t next_ = 0;  // the first chunk that is not in a line yet
};

}  // namespace

Result<std::vector<std::string>> wrapped(std::string_view text, const WrapStyle& style,
                                         Budget& budget) {
  if (!budget.spend(1 + text.size())) return budget.status();
  return Wrapper(text, style).run(budget);
}

}  // namespace wideep::jinja
