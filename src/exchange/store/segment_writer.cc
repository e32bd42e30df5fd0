// SPDX-License-Identifier: Apache-2.0
//
// Room is made for a segment's whole capacity before it exists, so that appending never has to wait
// for it, and max_bytes is kept by processes that know nothing of each other.
#include "store/segment_writer.h"

#include <algorithm>
#include <cerrno>
#include <optional>

namespace wideep::store {
namespace {

// Small beside max_bytes, so that those of many ranks fit into it; large enough to be few.
uint64_t default_segment_bytes(uint64_t max_bytes) {
  constexpr uint64_t kLeast = uint64_t{4} << 20, kMost = uint64_t{512} << 20;
  return std::min(std::clamp(max_bytes / 64, kLeast, kMost), max_bytes / 4);
}

}  // namespace

SegmentWriter::SegmentWriter(SegmentSet& segments, uint64_t max_bytes, uint64_t segment_bytes)
    : segments_(segments),
      max_bytes_(max_bytes),
      segment_bytes_(round_up_to_block(segment_bytes > 0 ? segment_bytes
                                                         : default_segment_bytes(max_bytes))) {}

// nullptr: there is none, or somebody has removed its file.
Segment* SegmentWriter::active() {
  if (!has_active_) return nullptr;
  int error = 0;
  Segment* segment = segments_.opened(active_, error);
  has_active_ = segment != nullptr && segment->is_appending();
  return has_active_ ? segment : nullptr;
}

int SegmentWriter::append(RecordHead& record, std::span<std::byte> block_and_payload) {
  Segment* segment = active();
  if (segment == nullptr || !segment->has_room(record.bytes())) {
    if (segment != nullptr) {
      if (const int error = segment->complete(); error != 0) return error;
    }
    if (const int error = begin_another(record.bytes()); error != 0) return error;
    segment = active();
  }
  if (const int error = segment->append(record, block_and_payload); error != 0) return error;
  segments_.add(record);
  return 0;
}

int SegmentWriter::complete() {
  Segment* segment = active();
  has_active_ = false;
  return segment == nullptr ? 0 : segment->complete();
}

int SegmentWriter::begin_another(uint64_t record_bytes) {
  has_active_ = false;
  Segment* segment = segments_.take_over(record_bytes);
  // Of a new one: its first block, and one that stays free (Segment::has_room). Room is made in any
  // case: max_bytes may have been more when the rest was written.
  const uint64_t capacity = std::max(segment_bytes_, record_bytes + 2 * kBlockBytes);
  if (const int error = make_room(segment == nullptr ? capacity : 0); error != 0) {
    if (segment != nullptr) segment->complete();
    return error;
  }
  if (segment == nullptr) {
    if (const int error = segments_.create(capacity, segment); error != 0) return error;
  }
  active_ = segment->id();
  has_active_ = true;
  return 0;
}

int SegmentWriter::make_room(uint64_t bytes) {
  if (bytes > max_bytes_ / 2) return kNoRoom;
  std::unordered_set<uint64_t> busy;
  const auto may_go = [&](const DirectoryIndex::Entry& entry) {
    return std::all_of(entry.records.begin(), entry.records.end(), [&](const auto& record) {
      return segments_.is_complete(record.segment) && !busy.contains(record.segment);
    });
  };
  while (segments_.allocated() + bytes > max_bytes_) {
    if (segments_.remove_one_of_another_version() == 0) continue;
    std::optional<DirectoryIndex::Key> key;
    if (can_punch_) key = segments_.index().least(may_go);
    if (can_punch_ && !key) key = segments_.index().deepest(may_go);
    if (key && segments_.others_have_used(*key)) continue;
    int error = 0;
    if (key) {
      error = evict(*key, busy);
    } else {
      uint64_t num_records = 0;
      error = segments_.remove_oldest(num_records);
      if (error == ENOENT) return kNoRoom;
      evicted_ += num_records;
    }
    if (error != 0) return error;
  }
  return 0;
}

int SegmentWriter::evict(const DirectoryIndex::Key& key, std::unordered_set<uint64_t>& busy) {
  const DirectoryIndex::Entry entry = *segments_.index().find(key);
  segments_.index().advance_clock(entry.worth);
  for (const auto& record : entry.records) {
    const int error = segments_.take_out(key, record);
    if (error == 0) ++evicted_;
    if (error == EAGAIN) busy.insert(record.segment);
    if (error == EOPNOTSUPP) {
      ++evicted_;
      can_punch_ = false;
    }
    const bool is_known = error == 0 || error == EAGAIN || error == EOPNOTSUPP || error == ENOENT;
    if (!is_known) return error;
  }
  return 0;
}

}  // namespace wideep::store
