// SPDX-License-Identifier: Apache-2.0
//
// Any file gives records that lie apart within it, in order, of possible parts; and the same ones
// whether it is read at once or while it grows.
//
// data: a block for each kChunk bytes: those that a block begins with, then a byte that says whether
// the checksum is made right (1), and segment and offset (2), which no mutation would ever hit.
#include "store/segment_scanner.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/content_hash.h"
#include "base/scratch_directory.h"

namespace {

using namespace wideep::store;

constexpr uint64_t kSegment = 0x5eed;
constexpr size_t kFields = 408, kChunk = kFields + 8;
constexpr size_t kHashOffset = kBlockBytes - sizeof(uint64_t);

std::vector<std::byte> file_of(const uint8_t* data, size_t size) {
  std::vector<std::byte> file(kBlockBytes);
  for (size_t at = 0; at + kChunk <= size; at += kChunk) {
    const uint64_t offset = file.size();
    file.resize(offset + kBlockBytes);
    std::byte* block = file.data() + offset;
    std::memcpy(block, data + at, kFields);
    const uint8_t flags = data[at + kFields];
    if ((flags & 2) != 0) {
      std::memcpy(block + 16, &kSegment, sizeof(kSegment));
      std::memcpy(block + 24, &offset, sizeof(offset));
    }
    if ((flags & 1) != 0) {
      const uint64_t hash = wideep::base::content_hash(block, kHashOffset);
      std::memcpy(block + kHashOffset, &hash, sizeof(hash));
    }
  }
  // The rest: the file may end within a block.
  for (size_t at = size / kChunk * kChunk; at < size; ++at) file.push_back(std::byte{data[at]});
  return file;
}

void check(const RecordHead& record, uint64_t behind, uint64_t size) {
  WIDEEP_CHECK_EQ(record.offset % kBlockBytes, 0u);
  WIDEEP_CHECK_LE(behind, record.offset);
  WIDEEP_CHECK_LE(record.end(), size);
  WIDEEP_CHECK(is_possible(record.head.part, record.head.canonical_bytes));
  WIDEEP_CHECK_EQ(record.payload_bytes, record.head.part.bytes());
  WIDEEP_CHECK(record.seconds >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const wideep::base::ScratchDirectory scratch;
  const std::string path = scratch.file("segment");
  const std::vector<std::byte> bytes = file_of(data, size);
  FILE* out = std::fopen(path.c_str(), "w");
  if (std::fwrite(bytes.data(), 1, bytes.size(), out) != bytes.size()) std::abort();
  std::fclose(out);

  DirectFile file;
  WIDEEP_CHECK_EQ(file.open(path, /*is_new=*/false), 0);
  std::vector<uint64_t> complete, growing;
  uint64_t behind = kBlockBytes;
  SegmentScanner scanner(kSegment);
  WIDEEP_CHECK_EQ(scanner.scan(file, bytes.size(), /*is_complete=*/true,
                               [&](const RecordHead& record) {
                                 check(record, behind, bytes.size());
                                 behind = record.end();
                                 complete.push_back(record.offset);
                               }),
                  0);
  WIDEEP_CHECK_EQ(scanner.end(), complete.empty() ? kBlockBytes : behind);

  SegmentScanner later(kSegment);
  const auto add = [&](const RecordHead& record) { growing.push_back(record.offset); };
  WIDEEP_CHECK_EQ(later.scan(file, bytes.size() / 2, /*is_complete=*/false, add), 0);
  WIDEEP_CHECK_EQ(later.scan(file, bytes.size(), /*is_complete=*/false, add), 0);
  WIDEEP_CHECK_EQ(later.scan(file, bytes.size(), /*is_complete=*/true, add), 0);
  WIDEEP_CHECK(growing == complete);
  return 0;
}
