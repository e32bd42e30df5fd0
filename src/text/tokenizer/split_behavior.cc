// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/split_behavior.h"

namespace wideep::tokenizer {
namespace {

// Whether the stretch at `i` continues the piece of the one before it.
bool joins_previous(const std::vector<Stretch>& stretches, size_t i, SplitBehavior behavior) {
  if (i == 0) return false;
  const bool before = stretches[i - 1].matches, here = stretches[i].matches;
  switch (behavior) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      return false;
    case SplitBehavior::kMergedWithPrevious:
      return here && !before;
    case SplitBehavior::kMergedWithNext:
      return before && !here;
    case SplitBehavior::kContiguous:
      return before == here;
  }
  return false;
}

}  // namespace

void append_pieces(const std::vector<Stretch>& stretches, SplitBehavior behavior,
                   std::vector<std::string_view>* pieces) {
  for (size_t i = 0; i < stretches.size(); ++i) {
    const Stretch& stretch = stretches[i];
    if (behavior == SplitBehavior::kRemoved && stretch.matches) continue;
    if (joins_previous(stretches, i, behavior)) {
      const std::string_view piece = pieces->back();
      pieces->back() = {piece.data(), piece.size() + stretch.text.size()};
    } else {
      pieces->push_back(stretch.text);
    }
  }
}

}  // namespace wideep::tokenizer
