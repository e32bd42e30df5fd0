// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace wideep::base {

// Makes text of unknown origin fit into a one-line message: bytes outside printable ASCII become
// \n, \t or \xNN, and text longer than max_bytes is cut and ends in "...".
std::string printable(std::string_view text, size_t max_bytes = 120);

}  // namespace wideep::base
