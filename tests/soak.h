// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace wideep::tests {

// How long each soak lasts.
inline double soak_seconds() {
  const char* value = std::getenv("WIDEEP_SOAK_SECONDS");
  return value == nullptr ? 4.0 : std::atof(value);
}

}  // namespace wideep::tests
