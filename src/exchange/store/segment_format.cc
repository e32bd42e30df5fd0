// SPDX-License-Identifier: Apache-2.0
//
// The fields of blocks as they lie in the file, little-endian (docs/prompt_cache_format.md).
#include "store/segment_format.h"

#include <bit>
#include <cmath>

#include "base/content_hash.h"

namespace wideep::store {
namespace {

static_assert(std::endian::native == std::endian::little);

// The ends of lines show what has gone through a transfer of text.
constexpr std::array<char, 8> kSegmentMagic = {'w', 'd', 'p', 's', 'e', 'g', '\r', '\n'};
constexpr std::array<char, 8> kRecordMagic = {'w', 'd', 'p', 'r', 'e', 'c', '\r', '\n'};
constexpr uint64_t kHashOffset = kBlockBytes - sizeof(uint64_t);
constexpr uint64_t kMaxCanonicalBytes = uint64_t{1} << 40;
constexpr double kMaxSeconds = 1e9;

// As they lie in the file: no member needs padding.
struct Beginning {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t block_bytes;
};

struct SegmentFields {
  Beginning beginning;
  uint64_t id;
  uint64_t capacity;
  uint64_t sequence;
};
static_assert(sizeof(SegmentFields) == 40);

struct RecordFields {
  Beginning beginning;
  uint64_t segment;
  uint64_t offset;
  uint64_t payload_bytes;
  uint64_t payload_hash;
  std::array<unsigned char, 16> record_class;
  std::array<unsigned char, 16> name;
  std::array<unsigned char, 16> before;
  uint32_t kind;
  uint32_t page;
  double seconds;
  uint64_t canonical_bytes;
  uint64_t part_first;
  uint64_t part_length;
  uint64_t part_stride;
  uint64_t part_count;
  std::array<int32_t, kPageTokens> tokens;
};
static_assert(sizeof(RecordFields) == 408);

template <typename Fields>
void put(const Fields& fields, BlockBytes block) {
  std::memset(block.data(), 0, block.size());
  std::memcpy(block.data(), &fields, sizeof(fields));
  const uint64_t hash = base::content_hash(block.data(), kHashOffset);
  std::memcpy(block.data() + kHashOffset, &hash, sizeof(hash));
}

bool is_zero(ConstBlockBytes block) {
  return block[0] == std::byte{0} &&
         std::memcmp(block.data(), block.data() + 1, kBlockBytes - 1) == 0;
}

template <typename Fields>
BlockKind take(ConstBlockBytes block, const std::array<char, 8>& magic, Fields& fields) {
  std::memcpy(&fields, block.data(), sizeof(fields));
  if (fields.beginning.magic != magic) {
    return is_zero(block) ? BlockKind::kEmpty : BlockKind::kUnreadable;
  }
  if (fields.beginning.version != kFormatVersion || fields.beginning.block_bytes != kBlockBytes) {
    return BlockKind::kOtherVersion;
  }
  uint64_t hash = 0;
  std::memcpy(&hash, block.data() + kHashOffset, sizeof(hash));
  return hash == base::content_hash(block.data(), kHashOffset) ? BlockKind::kWhole
                                                               : BlockKind::kUnreadable;
}

constexpr Beginning beginning(const std::array<char, 8>& magic) {
  return {.magic = magic, .version = kFormatVersion, .block_bytes = kBlockBytes};
}

}  // namespace

bool is_possible(const Part& part, uint64_t canonical_bytes) {
  if (canonical_bytes > kMaxCanonicalBytes || part.length == 0 || part.count == 0) return false;
  if (part.length > canonical_bytes || part.first > canonical_bytes - part.length) return false;
  if (part.count == 1) return true;
  if (part.stride < part.length) return false;
  const uint64_t behind_first = canonical_bytes - part.length - part.first;
  return part.count - 1 <= behind_first / part.stride;
}

void write_block(const SegmentHead& segment, BlockBytes block) {
  put(SegmentFields{.beginning = beginning(kSegmentMagic),
                    .id = segment.id,
                    .capacity = segment.capacity,
                    .sequence = segment.sequence},
      block);
}

void write_block(const RecordHead& record, BlockBytes block) {
  const Head& head = record.head;
  put(RecordFields{.beginning = beginning(kRecordMagic),
                   .segment = record.segment,
                   .offset = record.offset,
                   .payload_bytes = record.payload_bytes,
                   .payload_hash = record.payload_hash,
                   .record_class = record.record_class.bytes,
                   .name = head.name.bytes,
                   .before = head.before.bytes,
                   .kind = static_cast<uint32_t>(head.kind),
                   .page = head.page,
                   .seconds = record.seconds,
                   .canonical_bytes = head.canonical_bytes,
                   .part_first = head.part.first,
                   .part_length = head.part.length,
                   .part_stride = head.part.stride,
                   .part_count = head.part.count,
                   .tokens = head.tokens},
      block);
}

BlockKind read_block(ConstBlockBytes block, SegmentHead& segment) {
  SegmentFields fields;
  const BlockKind kind = take(block, kSegmentMagic, fields);
  if (kind != BlockKind::kWhole) return kind;
  segment = {.id = fields.id, .capacity = fields.capacity, .sequence = fields.sequence};
  return kind;
}

BlockKind read_block(ConstBlockBytes block, uint64_t segment, uint64_t offset, RecordHead& record) {
  RecordFields fields;
  const BlockKind kind = take(block, kRecordMagic, fields);
  if (kind != BlockKind::kWhole) return kind;
  const Part part = {.first = fields.part_first,
                     .length = fields.part_length,
                     .stride = fields.part_stride,
                     .count = fields.part_count};
  if (fields.segment != segment || fields.offset != offset ||
      fields.kind > static_cast<uint32_t>(Kind::kState) ||
      !is_possible(part, fields.canonical_bytes) || fields.payload_bytes != part.bytes()) {
    return BlockKind::kUnreadable;
  }
  const bool is_time = std::isfinite(fields.seconds) && fields.seconds >= 0;
  record = {.head = {.name = {fields.name},
                     .before = {fields.before},
                     .kind = static_cast<Kind>(fields.kind),
                     .page = fields.page,
                     .tokens = fields.tokens,
                     .canonical_bytes = fields.canonical_bytes,
                     .part = part},
            .record_class = {fields.record_class},
            .seconds = is_time ? std::min(fields.seconds, kMaxSeconds) : 0.0,
            .segment = segment,
            .offset = offset,
            .payload_bytes = fields.payload_bytes,
            .payload_hash = fields.payload_hash};
  return kind;
}

}  // namespace wideep::store
