// SPDX-License-Identifier: Apache-2.0
//
// Bytes as text (RFC 4648, section 4).
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace wideep::formats {

std::string base64(std::string_view bytes);
// nullopt: not base64 with its padding, or with bits that have no meaning.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace wideep::formats
