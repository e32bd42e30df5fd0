// SPDX-License-Identifier: Apache-2.0
//
// What has become of the prompts that were looked for in places beyond the KV cache, since the
// serving process began.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>

namespace wideep::server {

struct FetchCounts {
  uint64_t looked = 0;  // requests
  uint64_t fetched_requests = 0;
  uint64_t fetched_tokens = 0;     // that caches did not know
  uint64_t refused_as_dearer = 0;  // computing is cheaper
  uint64_t gave_up = 0;            // too slow, no room, or it was not there any more
  double saved_seconds = 0.0;      // of computing, less those of waiting; as far as measured
};

}  // namespace wideep::server
