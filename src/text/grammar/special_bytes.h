// SPDX-License-Identifier: Apache-2.0
//
// How a special token is written where everything else is text: between bytes that UTF-8 does not
// have, so that no text matches it and none is the beginning of another.
#pragma once

#include <string>
#include <string_view>

namespace wideep::grammar {

inline constexpr char kSpecialBegin = '\xff', kSpecialEnd = '\xfe';

inline std::string special_bytes(std::string_view name) {
  std::string bytes(1, kSpecialBegin);
  bytes += name;
  bytes += kSpecialEnd;
  return bytes;
}

}  // namespace wideep::grammar
