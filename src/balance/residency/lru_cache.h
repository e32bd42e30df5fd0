// SPDX-License-Identifier: Apache-2.0
//
// Least recently used: what most programs keep of a model larger than memory. For comparison.
//
// Allocates in the constructor only. Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

namespace wideep::residency {

class LruCache {
 public:
  // Of records 0 to num_records − 1 the cache has room for `room` (≥ 0).
  LruCache(size_t num_records, size_t room);

  // Whether the record is there. It is the one used last now; the one whose use is the longest ago
  // leaves for it.
  bool use(size_t record);

 private:
  void unlink(size_t record);
  void link_first(size_t record);

  size_t room_;
  size_t used_ = 0;
  // A ring through all that is there, and through an end, [num_records]: the first is after it.
  std::vector<size_t> next_, previous_;
  std::vector<bool> is_there_;
};

}  // namespace wideep::residency
