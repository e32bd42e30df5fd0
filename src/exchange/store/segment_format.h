// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a segment, a file of records (docs/prompt_cache_format.md):
//
//   segment block | record block · payload · zeros | record block · payload · zeros | …
//
// Blocks have 4,096 bytes, and each begins at a multiple of that. The last 8 bytes of a block are
// the XXH3 of the others. A record block says in which segment it is, and where: one that is copied
// to another place, or that lies within a payload, is none.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/record.h"

namespace wideep::store {

inline constexpr uint64_t kBlockBytes = 4096;
inline constexpr uint32_t kFormatVersion = 1;

constexpr uint64_t round_up_to_block(uint64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

struct SegmentHead {
  uint64_t id = 0;
  uint64_t capacity = 0;  // of the file while records are appended to it; then it is cut shorter
  uint64_t sequence = 0;  // higher than those of the segments that were there before
};

// Where a record lies, what it is, and what its bytes must be.
struct RecordHead {
  Head head;
  Name record_class;  // root_name(class, "")
  double seconds = 0;
  uint64_t segment = 0;
  uint64_t offset = 0;         // of its block
  uint64_t payload_bytes = 0;  // head.part.bytes()
  uint64_t payload_hash = 0;   // XXH3

  uint64_t payload_offset() const { return offset + kBlockBytes; }
  uint64_t bytes() const { return kBlockBytes + round_up_to_block(payload_bytes); }
  uint64_t end() const { return offset + bytes(); }
};

using BlockBytes = std::span<std::byte, kBlockBytes>;
using ConstBlockBytes = std::span<const std::byte, kBlockBytes>;

enum class BlockKind : uint8_t {
  kWhole,
  kEmpty,         // zeros
  kOtherVersion,  // its first bytes are right, and its version is another
  kUnreadable,    // anything else
};

void write_block(const SegmentHead& segment, BlockBytes block);
void write_block(const RecordHead& record, BlockBytes block);

// What the block is; kWhole: `segment` has what it says.
BlockKind read_block(ConstBlockBytes block, SegmentHead& segment);

// As a record of this segment at this offset. kWhole: part, lengths and kind are possible ones.
BlockKind read_block(ConstBlockBytes block, uint64_t segment, uint64_t offset, RecordHead& record);

// Whether the part lies within the canonical form, and its pieces apart from each other.
bool is_possible(const Part& part, uint64_t canonical_bytes);

}  // namespace wideep::store
