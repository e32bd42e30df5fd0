// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace wideep::base {

// A part of a URL with %XX as the bytes they stand for. nullopt: a '%' without two hexadecimal
// digits behind it.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace wideep::base
