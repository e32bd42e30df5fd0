// SPDX-License-Identifier: Apache-2.0
//
// What becomes of the matches of a pattern and of the text between them. The names are those of the
// tokenizers library (SplitDelimiterBehavior).
//
// Thread safety: pure functions.
#pragma once

#include <string_view>
#include <vector>

namespace wideep::tokenizer {

// A stretch of a text: a match, or what is between two. None is empty.
struct Stretch {
  std::string_view text;
  bool matches;
};

enum class SplitBehavior {
  kRemoved,             // matches are left out
  kIsolated,            // each is a piece
  kMergedWithPrevious,  // a match ends the piece before it; of several in a row the first does
  kMergedWithNext,      // a match begins the piece after it; of several in a row the last does
  kContiguous,          // matches in a row are one piece
};

// Appends the pieces of a text. Stretches are its parts, in order and without gaps.
void append_pieces(const std::vector<Stretch>& stretches, SplitBehavior behavior,
                   std::vector<std::string_view>* pieces);

}  // namespace wideep::tokenizer
