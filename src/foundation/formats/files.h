// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes whole files.
//
// Thread safety: functions may be called from any thread.
#pragma once

#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::formats {

// Whether this is no file of its own but a pointer that Git LFS left in its place.
bool is_lfs_pointer(std::string_view content);
// The error for such a file: how to get its content.
Status lfs_pointer(const std::string& path);

// The content of a file; a pipe is read to its end.
// Errors (invalid input) name the path and the reason: missing, not readable, larger than 256 MiB,
// a pointer of Git LFS.
Result<std::string> read_file(const std::string& path);

// Writes the whole file or nothing: writes a temporary file in the same directory, flushes it and
// renames it to `path`. Errors (failed): disk full, not writable, `path` is a directory, link, pipe
// or device. After an error the old file is unchanged and no temporary file is left.
Status write_file(const std::string& path, std::string_view content);

// The same for a file that is written in pieces. Not thread safe. Two writers of one path do not
// disturb each other: the file is that of the last commit.
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
  std::string temporary_;  // empty after the rename or a move
  int fd_;
};

// Checks that AtomicFile could write this file now, without leaving anything behind: to report a
// wrong path before a long run. Errors (invalid input): those of AtomicFile::create.
Status check_writable(const std::string& path);

}  // namespace wideep::formats
