// SPDX-License-Identifier: Apache-2.0
//
// Notices that a file which was opened before has been changed or replaced since.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "wideep/status.h"

namespace wideep::formats {

// Two states of a file are equal unless the file was changed or replaced.
struct FileState {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t bytes = -1;  // −1: no such file
  int64_t modified_ns = 0;

  bool operator==(const FileState&) const = default;
};

FileState file_state(const std::string& path);

// Errors (failed): the file is in another state now.
Status check_unchanged(const std::string& path, const FileState& before);

}  // namespace wideep::formats
