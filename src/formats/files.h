// SPDX-License-Identifier: Apache-2.0
//
// Whole files in, whole files out.
#pragma once

#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::formats {

// The whole file as bytes; pipes are read to their end.
// Errors (invalid input) name the path and the reason; more than 256 MiB is one.
Result<std::string> read_file(const std::string& path);

// Writes `path` whole or not at all: a temporary file beside it, flushed, then renamed over it.
// Errors (failed): disk full, not writable, the name of a directory, link, pipe or device, ...;
// nothing is left behind and what was there stays.
Status write_file(const std::string& path, std::string_view content);

// The same in pieces. Not thread safe; two writers of one path do not disturb each other, the last
// commit wins.
//
//   WIDEEP_TRY_ASSIGN(AtomicFile file, AtomicFile::create("out.bin"));
//   WIDEEP_TRY(file.append(bytes));
//   return file.commit();       // without it the destructor removes the temporary file
class AtomicFile {
 public:
  static Result<AtomicFile> create(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status append(std::string_view bytes);
  Status commit();

 private:
  AtomicFile(std::string path, std::string temporary, int fd);

  std::string path_;
  std::string temporary_;  // empty once renamed or moved from
  int fd_;
};

// Whether such a file could be made now; nothing is left behind. Errors: as AtomicFile::create.
Status check_writable(const std::string& path);

}  // namespace wideep::formats
