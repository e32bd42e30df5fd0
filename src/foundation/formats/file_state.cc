// SPDX-License-Identifier: Apache-2.0
#include "formats/file_state.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace wideep::formats {

FileState file_state(const std::string& path) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) return {};
  return {.device = found.st_dev,
          .inode = found.st_ino,
          .bytes = found.st_size,
          .modified_ns = found.st_mtim.tv_sec * int64_t{1'000'000'000} + found.st_mtim.tv_nsec};
}

Status check_unchanged(const std::string& path, const FileState& before) {
  if (file_state(path) == before) return {};
  return failed(fmt::format(
      "{}: the file changed while it was read; start again when no process writes to it", path));
}

}  // namespace wideep::formats
