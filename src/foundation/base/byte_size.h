// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace wideep::base {

// A number of bytes for people, in powers of 1024 and with one decimal: "512 B", "1.5 GiB".
std::string byte_size(uint64_t bytes);

}  // namespace wideep::base
