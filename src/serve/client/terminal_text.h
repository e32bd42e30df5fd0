// SPDX-License-Identifier: Apache-2.0
//
// Text of a model, a server or a file, made fit for a terminal. What would drive the terminal is
// left out: control characters but for line feeds and tabs (ESC, which begins every sequence; DEL;
// C1, which some terminals take for sequences of one character) and the marks that turn the
// direction of text around, with which a text can look like another. Bytes that are not UTF-8
// become U+FFFD.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace wideep::client {

std::string terminal_text(std::string_view text);

// The same on one line of at most max_bytes, which ends in "..." where it was cut.
std::string terminal_line(std::string_view text, size_t max_bytes = 400);

// Where the first byte is that belongs to no character of UTF-8; nothing: there is none.
std::optional<size_t> no_utf8_at(std::string_view text);

}  // namespace wideep::client
