// SPDX-License-Identifier: Apache-2.0
//
// What speculation reports of a step. Plain values.
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

// What an adaptive draft length was expected to bring: the tokens that a step yields, and its time.
// Zeros: nothing was expected.
struct Forecast {
  double tokens = 0;
  double seconds = 0;

  bool operator==(const Forecast&) const = default;
};

}  // namespace wideep::engine
