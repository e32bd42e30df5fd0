// SPDX-License-Identifier: Apache-2.0
//
// Bytes as text (RFC 4648, section 4).
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace wideep::formats {

std::string base64(std::string_view bytes);

}  // namespace wideep::formats
