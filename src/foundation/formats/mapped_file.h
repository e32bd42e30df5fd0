// SPDX-License-Identifier: Apache-2.0
//
// A file that is mapped read-only instead of being read: opening is fast, and pages are read when
// they are used.
//
// Thread safety: immutable after open.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "wideep/status.h"

namespace wideep::formats {

class MappedFile {
 public:
  // Errors (invalid input): missing, not readable, not a regular file.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  // Valid as long as this object, or what it was moved to; empty for an empty file.
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace wideep::formats
