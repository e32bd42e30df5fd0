// SPDX-License-Identifier: Apache-2.0
#include "base/random_hex.h"

#include <unistd.h>

#include <array>
#include <string_view>

#include "base/check.h"

namespace wideep::base {

std::string random_hex(size_t bytes) {
  std::array<unsigned char, 32> random;
  WIDEEP_CHECK(bytes > 0 && bytes <= random.size());
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  do {
    text.clear();
    WIDEEP_CHECK(::getentropy(random.data(), bytes) == 0);
    for (size_t i = 0; i < bytes; ++i) {
      text += kDigits[random[i] >> 4];
      text += kDigits[random[i] & 15];
    }
  } while (text.find_first_not_of('0') == text.npos);
  return text;
}

}  // namespace wideep::base
