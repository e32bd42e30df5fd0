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

#include "chat/budget.h"

namespace wideep::chat {

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // str.title()

// The ends of a text from which strip() removes characters.
enum class Ends { kBoth, kLeft, kRight };
// characters: the set of characters to remove; nothing: white space.
std::string_view strip(std::string_view text, Ends ends,
                       std::optional<std::string_view> characters = {});

// separator: nothing means runs of white space. limit: the maximal number of splits; −1: no limit.
std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t limit, Budget& budget);
std::vector<std::string> split_lines(std::string_view text, Budget& budget);

// limit: the maximal number of replacements; −1: no limit. An empty `from` matches before every
// code point and at the end.
std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    int64_t limit, Budget& budget);
// The byte position of `what` in text; npos: not found.
size_t position_in(std::string_view text, std::string_view what);
int64_t find(std::string_view text, std::string_view what);  // in code points; −1: not found
int64_t count(std::string_view text, std::string_view what);

}  // namespace wideep::chat
