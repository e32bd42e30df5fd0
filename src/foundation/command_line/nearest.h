// SPDX-License-Identifier: Apache-2.0
//
// Which option or command a misspelt word may mean: --modle, srve.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wideep::command_line {

// The name that `word` is most likely to mean: the closest (base::closest_word), else the shortest
// that begins with it. "" if there is none. Dashes at the front do not count: "-modle" is near
// "--model". One letter is near to nothing.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace wideep::command_line
