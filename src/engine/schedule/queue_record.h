// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace wideep::engine {

// Requests and KV cache at the start of an iteration. The ranks that compute one batch together
// share one scheduler state: their first rank reports it, the records of the others are empty.
struct QueueRecord {
  int32_t running = 0;      // requests that are admitted to the cache
  int32_t waiting = 0;      // requests that are not admitted yet
  int32_t scheduled = 0;    // running requests with tokens in the iteration
  int32_t prompts = 0;      // scheduled requests with prompt tokens
  int32_t cache_pages = 0;  // used by running requests
  int32_t kept_pages = 0;   // used by no request, kept for requests with the same prefix
  int32_t max_pages = 0;
  // Totals since the start.
  int64_t reused_tokens = 0;  // found in the cache instead of computed
  int64_t evicted_pages = 0;  // kept pages that were given to other contents
  int64_t pauses = 0;         // of requests, for want of pages

  bool operator==(const QueueRecord&) const = default;
  QueueRecord& operator+=(const QueueRecord& other);
};

}  // namespace wideep::engine
