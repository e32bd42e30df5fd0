// SPDX-License-Identifier: Apache-2.0
//
// Reads all records of a directory of segments, one after the other, and changes nothing there: no
// file is made, written or locked. For archives, which nobody appends to (run/prompt_files.h).
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "store/segment_format.h"
#include "wideep/status.h"

namespace wideep::store {

// What could not be read.
struct UnreadCounts {
  uint64_t damaged = 0;  // payloads without their checksum; runs of blocks that are no records
  uint64_t foreign = 0;  // segments and records of other versions; other files
};

struct RecordVisitor {
  // Whether the payload is wanted; memory for it is taken after that.
  std::function<bool(const RecordHead& record)> wants;
  // A record whose payload has its checksum. False: no more are wanted.
  std::function<bool(const RecordHead& record, std::span<const std::byte> payload)> take;
};

// In the order in which they were written. Errors: there is no such directory, or none without a
// link (invalid input); it cannot be read (failed).
Result<UnreadCounts> read_archive(const std::string& path, const RecordVisitor& visitor);

}  // namespace wideep::store
