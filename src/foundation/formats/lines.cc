// SPDX-License-Identifier: Apache-2.0
#include "formats/lines.h"

#include <algorithm>

namespace wideep::formats {

std::optional<NonBlankLines::Line> NonBlankLines::next() {
  while (at_ < content_.size()) {
    const size_t end = std::min(content_.find('\n', at_), content_.size());
    const std::string_view text = std::string_view(content_).substr(at_, end - at_);
    at_ = end + 1;
    ++number_;
    if (text.find_first_not_of(" \t\r") != text.npos) return Line{number_, text};
  }
  return std::nullopt;
}

}  // namespace wideep::formats
