// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace wideep::recordings {

// Increased when a key changes its meaning; readers refuse other versions.
inline constexpr int kRoutingLogVersion = 1;

// The largest file that formats::read_file reads.
inline constexpr size_t kMaxRoutingLogBytes = size_t{256} << 20;

}  // namespace wideep::recordings
