// SPDX-License-Identifier: Apache-2.0
//
// Which names of a directory are used, told to all processes that share it: a byte for each of
// kNumCounts hashes of names, which whoever uses a name makes one higher. A process that wants to
// evict an entry sees that others have used it since it last looked. Names that share a byte are
// kept a little longer than they are worth; a count that is lost, where two write at once, does the
// same as one use less.
//
// The file is read and written, not mapped: a disk that fails must not end a process. Without it,
// say on a read-only disk, each process knows its own uses.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "store/record.h"

namespace wideep::store {

class UseCounts {
 public:
  static constexpr uint64_t kNumCounts = uint64_t{1} << 18;  // and bytes of the file, at most
  static constexpr const char* kFileName = "uses.wideep";

  explicit UseCounts(const std::string& directory) : path_(directory + "/" + kFileName) {}
  ~UseCounts() { close(); }
  UseCounts(const UseCounts&) = delete;
  UseCounts& operator=(const UseCounts&) = delete;

  // Opens the file where it is there, or makes it; anew if somebody has removed it meanwhile.
  void open();
  bool is_open() const { return fd_ >= 0; }
  // 0 without the file.
  uint8_t count(const Name& name) const;
  // Returns the new count.
  uint8_t add(const Name& name);

 private:
  void close();

  std::string path_;
  int fd_ = -1;
};

}  // namespace wideep::store
