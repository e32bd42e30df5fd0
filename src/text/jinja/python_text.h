// SPDX-License-Identifier: Apache-2.0
//
// Python's string methods for UTF-8 text; lengths and positions count code points. They take linear
// time in the bytes they read and produce. A method that may produce more than it reads takes a
// budget.
//
// REQUIRES: texts are valid UTF-8. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/budget.h"

namespace wideep::jinja {

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // str.title()
// Properties of a character, as of a text of one: str.isdigit() and so on.
bool is_digit(char32_t c);
bool is_space(char32_t c);
bool is_printable(char32_t c);
// Whether all characters have a property, and there is one.
bool all_characters(std::string_view text, bool (*has)(char32_t));
// The ends of a text from which strip() removes characters.
enum class Ends { kBoth, kLeft, kRight };
// characters: the set of characters to remove; nothing: white space.
std::string_view strip(std::string_view text, Ends ends,
                       std::optional<std::string_view> characters = {});

// separator: nothing means runs of white space. limit: the maximal number of splits; −1: no limit.
std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t limit, Budget& budget);
// As split(), from the end.
std::vector<std::string> split_from_end(std::string_view text,
                                        std::optional<std::string_view> separator, int64_t limit,
                                        Budget& budget);
// Python's ends of lines: also \v, \f, the separators of ASCII, U+0085, U+2028 and U+2029.
std::vector<std::string> split_lines(std::string_view text, Budget& budget,
                                     bool keeps_ends = false);

// limit: the maximal number of replacements; −1: no limit. An empty `from` matches before every
// code point and at the end.
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit, Budget& budget);
// The byte position of `what` in text; npos: not found.
size_t position_in(std::string_view text, std::string_view what);
// The last one. Takes the product of both sizes at worst, which is charged.
size_t last_position_in(std::string_view text, std::string_view what, Budget& budget);
int64_t count(std::string_view text, std::string_view what);

}  // namespace wideep::jinja
