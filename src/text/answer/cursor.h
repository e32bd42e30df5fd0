// SPDX-License-Identifier: Apache-2.0
//
// Reads the beginning of a text of which more may come. The first step that does not match, or for
// which more text is needed, decides: later steps do nothing, so that what follows each other in
// the text follows each other in the code.
//
//   Cursor in(text, is_all);
//   in.literal("<function=");
//   const std::string_view name = in.until(">", kMaxNameBytes);
//   if (in.wants_more()) return 0;
//
// What is decided stays so, whatever text comes: this is why an answer's parts do not depend on
// how it is cut into tokens.
//
// Not thread safe; valid as long as the text.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace wideep::answer {

class Cursor {
 public:
  // is_all: no text follows.
  Cursor(std::string_view text, bool is_all) : text_(text), is_all_(is_all) {}

  bool ok() const { return state_ == State::kOk; }
  bool wants_more() const { return state_ == State::kMore; }
  void fail() {
    if (ok()) state_ = State::kNo;
  }
  // Bytes read so far.
  size_t position() const { return at_; }
  // No text is left, and none follows.
  bool at_end() const { return ok() && is_all_ && rest().empty(); }

  void literal(std::string_view expected);
  // Returns whether the text was there; if not, it stays where it is.
  bool optional(std::string_view expected);
  // Fails if none of them comes. Reads nothing.
  void expect_either(std::string_view a, std::string_view b);
  void space();
  // The next byte, which is not read; '\0' if there is none, or after a failure.
  char peek();
  // The text up to `end`, of at most so many bytes; `end` is read, too.
  std::string_view until(std::string_view end, size_t max);
  // At least one of letters, digits, '_', '-', '.', ':', '/', at most kMaxNameBytes.
  std::string_view word();
  // A JSON value of any kind.
  std::string_view json();

  // Names of tools and of their parameters. OpenAI's have at most 64.
  static constexpr size_t kMaxNameBytes = 256;

 private:
  enum class State { kOk, kMore, kNo };

  std::string_view rest() const { return text_.substr(at_); }
  std::string_view take(size_t bytes);
  void need_more() {
    if (ok()) state_ = is_all_ ? State::kNo : State::kMore;
  }

  std::string_view text_;
  bool is_all_;
  size_t at_ = 0;
  State state_ = State::kOk;
};

// The text of a JSON string, with its quotes, as UTF-8; lone surrogates become U+FFFD.
// REQUIRES: JsonWalker takes it.
std::string json_string_text(std::string_view json);

// Without white space at its ends.
std::string_view trimmed(std::string_view text);

// Where the first of the markers begins, from a place on; npos: there is none. Looks at no more of
// the text than that, so that a text with many of them is gone through once.
size_t find_first(std::string_view text, std::span<const std::string_view> markers,
                  size_t from = 0);

// The length of the longest end of the text that is a proper beginning of the marker.
size_t partial_marker(std::string_view text, std::string_view marker);

}  // namespace wideep::answer
