// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace wideep::engine {

// Requests and cache as an iteration began. Of ranks that compute one batch together the first
// tells it; the others' is empty.
struct QueueRecord {
  int32_t running = 0;      // admitted to the cache
  int32_t waiting = 0;      // not yet
  int32_t scheduled = 0;    // of those that run: with tokens in the iteration
  int32_t prompts = 0;      // of these: with tokens of their prompt
  int32_t cache_pages = 0;  // of requests that run
  int32_t kept_pages = 0;   // of nobody, for requests that begin alike
  int32_t max_pages = 0;
  // Since the start.
  int64_t reused_tokens = 0;  // that were not computed again
  int64_t evicted_pages = 0;  // that were kept, and made room
  int64_t pauses = 0;         // of requests, for want of pages

  bool operator==(const QueueRecord&) const = default;
  QueueRecord& operator+=(const QueueRecord& other);
};

}  // namespace wideep::engine
