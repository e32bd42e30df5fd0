// SPDX-License-Identifier: Apache-2.0
//
// Appends records to a segment of its own, and makes room in the directory for the next one: what
// is worth the least goes (directory_index.h), a segment's capacity at a time.
//
// Thread safety: one thread; the directory is shared with other processes.
#pragma once

#include <cstdint>
#include <span>

#include "store/segment_set.h"

namespace wideep::store {

class SegmentWriter {
 public:
  // All of the directory's bytes are what others use in it, or the record is too large.
  static constexpr int kNoRoom = -1;

  // segment_bytes: capacity of new segments; 0: by max_bytes.
  SegmentWriter(SegmentSet& segments, uint64_t max_bytes, uint64_t segment_bytes);

  // block_and_payload: as for Segment::append. 0, kNoRoom, or what errno says.
  int append(RecordHead& record, std::span<std::byte> block_and_payload);

  // Nothing more is appended: the segment is cut behind its last record. Returns what errno says.
  int complete();

  // Records that gave way.
  uint64_t evicted() const { return evicted_; }

 private:
  int begin_another(uint64_t record_bytes);
  int make_room(uint64_t bytes);
  int evict(const DirectoryIndex::Key& key, std::unordered_set<uint64_t>& busy);
  Segment* active();

  SegmentSet& segments_;
  uint64_t max_bytes_;
  uint64_t segment_bytes_;
  uint64_t active_ = 0;
  bool has_active_ = false;
  bool can_punch_ = true;
  uint64_t evicted_ = 0;
};

}  // namespace wideep::store
