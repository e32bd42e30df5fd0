// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace wideep::tools {

struct TextColumn {
  std::string title;
  bool is_text = false;            // at the left; numbers are at the right
  std::vector<std::string> cells;  // as many as of all other columns
};

// A title line and one line for each row, columns two spaces apart. Widths are counted in
// characters, since texts have signs such as µ.
std::string text_table(const std::vector<TextColumn>& columns);

}  // namespace wideep::tools
