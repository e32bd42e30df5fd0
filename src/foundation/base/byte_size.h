// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::base {

// A number of bytes for people, in powers of 1024 and with one decimal: "512 B", "1.5 GiB".
std::string byte_size(uint64_t bytes);

// A number of bytes as people write it: "8G", "1.5 GiB", "512M", "4096", also in lower case. K, M,
// G, T, P, E and KiB, ... are powers of 1024; KB, MB, ... of 1000. Errors (invalid input): anything
// else, and what is no uint64_t; the message says what was expected, and what was found.
Result<uint64_t> parse_byte_size(std::string_view text);

}  // namespace wideep::base
