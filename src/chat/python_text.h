// SPDX-License-Identifier: Apache-2.0
//
// Python's string methods on UTF-8: what counts is code points. Their time is in proportion to what
// they read and make; those that may make more than they read take a budget for it.
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

// Which ends.
enum class Ends { kBoth, kLeft, kRight };
// characters: to be removed; nothing: white space.
std::string_view strip(std::string_view text, Ends ends,
                       std::optional<std::string_view> characters = {});

// separator: nothing: runs of white space. most: splits, −1: all.
std::vector<std::string> split(std::string_view text, std::optional<std::string_view> separator,
                               int64_t most, Budget& budget);
std::vector<std::string> split_lines(std::string_view text, Budget& budget);

// most: −1: all. An empty `from` stands before every code point and at the end.
std::string replace(std::string_view text, std::string_view from, std::string_view to, int64_t most,
                    Budget& budget);
// The byte where `what` begins in text; npos: not there.
size_t position_in(std::string_view text, std::string_view what);
int64_t find(std::string_view text, std::string_view what);  // in code points; −1: not there
int64_t count(std::string_view text, std::string_view what);

}  // namespace wideep::chat
