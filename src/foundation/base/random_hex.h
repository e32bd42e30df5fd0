// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace wideep::base {

// 2 × bytes hexadecimal digits in lower case that nobody can guess, not all 0. REQUIRES:
// 1 to 32 bytes. Any thread.
std::string random_hex(size_t bytes);

}  // namespace wideep::base
