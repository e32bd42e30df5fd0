// SPDX-License-Identifier: Apache-2.0
//
// Python's textwrap.wrap() for one paragraph. Takes linear time. Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jinja/budget.h"
#include "wideep/status.h"

namespace wideep::jinja {

struct WrapStyle {
  double width = 0;      // in code points; > 0
  bool is_whole = true;  // of the width: Python cuts words only at whole positions
  bool breaks_long_words = true;
  bool splits_at_hyphens = true;       // a line may end after a hyphen between letters
  bool breaks_long_at_hyphens = true;  // a long word is preferably cut after a hyphen
};

// REQUIRES: valid UTF-8. Errors (invalid input): a long word would be cut at a broken width.
Result<std::vector<std::string>> wrapped(std::string_view text, const WrapStyle& style,
                                         Budget& budget);

}  // namespace wideep::jinja
