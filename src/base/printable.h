// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace wideep::base {

// Text of unknown origin made fit for a one-line message: bytes outside printable ASCII become
// \n, \t or \xNN, and what is longer than max_bytes ends in "...".
std::string printable(std::string_view text, size_t max_bytes = 120);

}  // namespace wideep::base
