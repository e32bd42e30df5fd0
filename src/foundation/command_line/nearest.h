// SPDX-License-Identifier: Apache-2.0
//
// Which name a misspelt word may mean: --modle, srve.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace wideep::command_line {

// The fewest insertions, removals and replacements of a byte, and exchanges of two neighbours, that
// turn one word into the other. No byte takes part in two exchanges ("optimal string alignment").
size_t edit_distance(std::string_view from, std::string_view to);

// The name that `word` is most likely to mean: one that differs little for the word's length, the
// first of the nearest; else the shortest that begins with it. "" if there is none. Dashes at the
// front of words do not count: "-modle" is near "--model".
std::string nearest(std::string_view word, std::span<const std::string> names);

}  // namespace wideep::command_line
