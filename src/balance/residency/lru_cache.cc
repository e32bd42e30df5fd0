// SPDX-License-Identifier: Apache-2.0
#include "residency/lru_cache.h"

namespace wideep::residency {

LruCache::LruCache(size_t num_records, size_t room)
    : room_(room),
      next_(num_records + 1, num_records),
      previous_(num_records + 1, num_records),
      is_there_(num_records) {}

void LruCache::unlink(size_t record) {
  next_[previous_[record]] = next_[record];
  previous_[next_[record]] = previous_[record];
}

void LruCache::link_first(size_t record) {
  const size_t end = is_there_.size();
  const size_t second = next_[end];
  next_[end] = previous_[second] = record;
  next_[record] = second;
  previous_[record] = end;
}

bool LruCache::use(size_t record) {
  if (room_ == 0) return false;
  const bool hit = is_there_[record];
  if (hit) {
    unlink(record);
  } else if (used_ == room_) {
    const size_t oldest = previous_[is_there_.size()];
    unlink(oldest);
    is_there_[oldest] = false;
  } else {
    ++used_;
  }
  link_first(record);
  is_there_[record] = true;
  return hit;
}

}  // namespace wideep::residency
