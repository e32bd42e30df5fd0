// SPDX-License-Identifier: Apache-2.0
//
// Finds the records of a segment by their blocks.
//
// While another process appends to a segment, it has no holes, and the first empty block is its
// end: what lies behind is being written. Once it is complete, records may be missing that were
// evicted, holes instead, and blocks may be unreadable; the scanner goes on at the next record.
//
// Thread safety: a plain value; one thread.
#pragma once

#include <cstdint>
#include <functional>

#include "store/direct_file.h"
#include "store/segment_format.h"

namespace wideep::store {

class SegmentScanner {
 public:
  explicit SegmentScanner(uint64_t segment) : segment_(segment) {}

  // The records behind those of the call before, in order. size: of the file. is_complete: nothing
  // is being appended. Returns 0, or what errno says of a read that failed: the next call goes on
  // there.
  int scan(DirectFile& file, uint64_t size, bool is_complete,
           const std::function<void(const RecordHead&)>& found);

  // The caller itself has appended a record that ends there.
  void pass(uint64_t record_end) { at_ = end_ = record_end; }

  // Behind the last record.
  uint64_t end() const { return end_; }
  // Runs of blocks that are no records, and records that the end of the file cuts off.
  uint64_t unreadable() const { return unreadable_; }
  uint64_t of_other_versions() const { return of_other_versions_; }

 private:
  int fill(DirectFile& file, uint64_t size);
  void step_over(BlockKind kind);

  uint64_t segment_;
  uint64_t at_ = kBlockBytes;
  uint64_t end_ = kBlockBytes;
  uint64_t unreadable_ = 0;
  uint64_t of_other_versions_ = 0;
  bool is_lost_ = false;  // within a run of blocks that are no records
  uint64_t last_bytes_ = 0;

  BlockMemory memory_;
  uint64_t window_begin_ = 0;  // what memory_ has of the file, during a call
  uint64_t window_end_ = 0;
};

}  // namespace wideep::store
