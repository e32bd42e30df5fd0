// SPDX-License-Identifier: Apache-2.0
#include "store/segment_format.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "base/content_hash.h"

namespace wideep::store {
namespace {

using Bytes = std::vector<std::byte>;

// As `hexdump -C` shows it: equal lines once, with a * in their place.
std::string hexdump(const Bytes& bytes) {
  std::string text, last;
  bool is_skipping = false;
  for (size_t at = 0; at < bytes.size(); at += 16) {
    std::string hex, letters;
    for (size_t i = at; i < at + 16; ++i) {
      const auto byte = static_cast<unsigned char>(bytes[i]);
      hex += fmt::format("{}{:02x} ", i == at + 8 ? " " : "", byte);
      letters += byte >= 32 && byte < 127 ? static_cast<char>(byte) : '.';
    }
    if (hex == last) {
      if (!is_skipping) text += "*\n";
      is_skipping = true;
      continue;
    }
    is_skipping = false;
    last = hex;
    text += fmt::format("{:08x}  {} |{}|\n", at, hex, letters);
  }
  return text + fmt::format("{:08x}\n", bytes.size());
}

// The example of docs/prompt_cache_format.md.
RecordHead example_record() {
  const Bytes payload = {std::byte{'h'}, std::byte{'e'}, std::byte{'l'}, std::byte{'l'},
                         std::byte{'o'}};
  RecordHead record = {.record_class = root_name("example", ""),
                       .seconds = 0.25,
                       .segment = 0x00c0ffee00c0ffee,
                       .offset = kBlockBytes,
                       .payload_bytes = payload.size(),
                       .payload_hash = base::content_hash(payload.data(), payload.size())};
  record.head.tokens.fill(7);
  record.head.before = root_name("example", "");
  record.head.name = page_name(record.head.before, 0, record.head.tokens);
  record.head.canonical_bytes = 10;
  record.head.part = {.first = 5, .length = 5, .stride = 10, .count = 1};
  return record;
}

Bytes example_file() {
  Bytes file(3 * kBlockBytes);
  write_block({.id = 0x00c0ffee00c0ffee, .capacity = 1 << 20, .sequence = 1},
              BlockBytes(file.data(), kBlockBytes));
  write_block(example_record(), BlockBytes(file.data() + kBlockBytes, kBlockBytes));
  std::memcpy(file.data() + 2 * kBlockBytes, "hello", 5);
  return file;
}

// Files outlive this program: other versions read what the page says.
TEST(SegmentFormat, IsWhatThePageShows) {
  std::ifstream page(std::string(WIDEEP_SOURCE_DIR) + "/docs/prompt_cache_format.md");
  std::ostringstream text;
  text << page.rdbuf();
  const std::string wanted = hexdump(example_file());
  EXPECT_NE(text.str().find("```text\n" + wanted + "```"), std::string::npos) << wanted;
}

TEST(SegmentFormat, BlocksAreReadAsWritten) {
  const Bytes file = example_file();
  const ConstBlockBytes segment_block(file.data(), kBlockBytes);
  const ConstBlockBytes record_block(file.data() + kBlockBytes, kBlockBytes);
  SegmentHead segment;
  ASSERT_EQ(read_block(segment_block, segment), BlockKind::kWhole);
  EXPECT_EQ(segment.id, 0x00c0ffee00c0ffeeu);
  EXPECT_EQ(segment.capacity, 1u << 20);
  EXPECT_EQ(segment.sequence, 1u);
  RecordHead record;
  ASSERT_EQ(read_block(record_block, segment.id, kBlockBytes, record), BlockKind::kWhole);
  const RecordHead wanted = example_record();
  EXPECT_EQ(record.head.name, wanted.head.name);
  EXPECT_EQ(record.head.before, wanted.head.before);
  EXPECT_EQ(record.head.tokens, wanted.head.tokens);
  EXPECT_EQ(record.head.part, wanted.head.part);
  EXPECT_EQ(record.record_class, wanted.record_class);
  EXPECT_EQ(record.seconds, wanted.seconds);
  EXPECT_EQ(record.payload_hash, wanted.payload_hash);
  EXPECT_EQ(record.end(), 3 * kBlockBytes);
  // Elsewhere it is none.
  EXPECT_EQ(read_block(record_block, segment.id + 1, kBlockBytes, record), BlockKind::kUnreadable);
  EXPECT_EQ(read_block(record_block, segment.id, 2 * kBlockBytes, record), BlockKind::kUnreadable);
  EXPECT_EQ(read_block(record_block, segment), BlockKind::kUnreadable);
  const Bytes zeros(kBlockBytes);
  EXPECT_EQ(read_block(ConstBlockBytes(zeros.data(), kBlockBytes), segment), BlockKind::kEmpty);
}

// With a right checksum: whoever writes such files does not make this program read what is not
// there.
TEST(SegmentFormat, ImpossibleRecordsAreNone) {
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  const auto kind_of = [](const RecordHead& record) {
    Bytes block(kBlockBytes);
    write_block(record, BlockBytes(block.data(), kBlockBytes));
    RecordHead found;
    return read_block(ConstBlockBytes(block.data(), kBlockBytes), record.segment, record.offset,
                      found);
  };
  EXPECT_EQ(kind_of(example_record()), BlockKind::kWhole);
  const std::vector<Part> parts = {
      {.first = 0, .length = 0, .stride = 5, .count = 1},
      {.first = 0, .length = 5, .stride = 5, .count = 0},
      {.first = 6, .length = 5, .stride = 5, .count = 1},
      {.first = kHuge, .length = 5, .stride = 5, .count = 1},
      {.first = 0, .length = kHuge, .stride = 5, .count = 1},
      {.first = 0, .length = 4, .stride = 3, .count = 2},  // pieces overlap
      {.first = 0, .length = 2, .stride = 5, .count = 3},  // the last lies outside
      {.first = 0, .length = 2, .stride = kHuge, .count = 2},
      {.first = 0, .length = 1, .stride = 1, .count = kHuge},
  };
  for (const Part& part : parts) {
    EXPECT_FALSE(is_possible(part, 10));
    RecordHead record = example_record();
    record.head.part = part;
    record.payload_bytes = part.bytes();
    EXPECT_EQ(kind_of(record), BlockKind::kUnreadable);
  }
  RecordHead longer = example_record();
  longer.payload_bytes = 6;
  EXPECT_EQ(kind_of(longer), BlockKind::kUnreadable);
  EXPECT_TRUE(is_possible({.first = 0, .length = 2, .stride = 4, .count = 3}, 10));
}

// What computing took is compared, and must stay comparable.
TEST(SegmentFormat, SecondsAreNumbers) {
  for (const double seconds : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()}) {
    RecordHead record = example_record();
    record.seconds = seconds;
    Bytes block(kBlockBytes);
    write_block(record, BlockBytes(block.data(), kBlockBytes));
    RecordHead found;
    ASSERT_EQ(read_block(ConstBlockBytes(block.data(), kBlockBytes), record.segment, record.offset,
                         found),
              BlockKind::kWhole);
    EXPECT_EQ(found.seconds, 0.0);
  }
}

}  // namespace
}  // namespace wideep::store
