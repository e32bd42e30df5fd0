// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace wideep::engine {

// A step of a request with drafts: how many it verified, and how many were right.
struct Verified {
  int32_t request = 0;  // Request::index
  int32_t drafted = 0;
  int32_t accepted = 0;

  bool operator==(const Verified&) const = default;
};

}  // namespace wideep::engine
