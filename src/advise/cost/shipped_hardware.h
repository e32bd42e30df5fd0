// SPDX-License-Identifier: Apache-2.0
//
// The text of shipped_hardware.yaml: a map from names to descriptions (hardware.h).
#pragma once

#include <string_view>

namespace wideep::cost {

std::string_view shipped_hardware_file();

}  // namespace wideep::cost
