// SPDX-License-Identifier: Apache-2.0
#include "store/segment_scanner.h"

#include <algorithm>

namespace wideep::store {
namespace {

// Read at once where blocks of records lie close together, or none is known.
constexpr uint64_t kWindowBytes = uint64_t{256} << 10;

}  // namespace

int SegmentScanner::fill(DirectFile& file, uint64_t size) {
  if (at_ >= window_begin_ && at_ + kBlockBytes <= window_end_) return 0;
  const bool are_far_apart = !is_lost_ && last_bytes_ > kWindowBytes / 4;
  const uint64_t wanted = are_far_apart ? kBlockBytes : kWindowBytes;
  const uint64_t bytes = std::min(wanted, (size - at_) / kBlockBytes * kBlockBytes);
  window_begin_ = window_end_ = 0;
  if (const int error = file.read(at_, std::span(memory_.at_least(bytes), bytes)); error != 0) {
    return error;
  }
  window_begin_ = at_;
  window_end_ = at_ + bytes;
  return 0;
}

void SegmentScanner::step_over(BlockKind kind) {
  if (!is_lost_) ++(kind == BlockKind::kOtherVersion ? of_other_versions_ : unreadable_);
  is_lost_ = true;
  at_ += kBlockBytes;
}

int SegmentScanner::scan(DirectFile& file, uint64_t size, bool is_complete,
                         const std::function<void(const RecordHead&)>& found) {
  window_begin_ = window_end_ = 0;  // others have written since
  RecordHead record;
  while (at_ <= size && size - at_ >= kBlockBytes) {
    if (const int error = fill(file, size); error != 0) return error;
    const std::byte* block = memory_.at_least(0) + (at_ - window_begin_);
    const BlockKind kind = read_block(ConstBlockBytes(block, kBlockBytes), segment_, at_, record);
    if (kind == BlockKind::kWhole && record.end() <= size) {
      is_lost_ = false;
      last_bytes_ = record.bytes();
      at_ = end_ = record.end();
      found(record);
    } else if (!is_complete) {
      return 0;  // not yet written, or not yet whole
    } else if (kind == BlockKind::kEmpty) {
      is_lost_ = false;
      at_ = file.next_data(at_ + kBlockBytes, size);
    } else {
      step_over(kind);
    }
  }
  return 0;
}

}  // namespace wideep::store
