// SPDX-License-Identifier: Apache-2.0
//
// A file that is read past the page cache (O_DIRECT): what a program keeps in its own memory would
// be there twice otherwise. Where the file system refuses that, the file is read as others are, and
// the kernel is told after each read that its copy is no longer needed.
//
// A file that is removed while it is open can be read as before.
//
// Thread safety: any thread may read.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "wideep/status.h"

namespace wideep::weights {

class DirectInput {
 public:
  // What offsets and addresses of memory must be multiples of.
  static constexpr uint64_t kBlockBytes = 4096;
  // As pread(2). Tests have others, which are slow, fail or change bits.
  using ReadPiece = std::function<ssize_t(int fd, std::byte* into, size_t bytes, off_t offset)>;

  // Errors (invalid input): missing, not readable, not a regular file.
  static Result<DirectInput> open(const std::string& path, ReadPiece read_piece = {});

  DirectInput(DirectInput&& other) noexcept;
  DirectInput& operator=(DirectInput&&) = delete;
  ~DirectInput();

  const std::string& path() const { return path_; }
  bool is_direct() const { return is_direct_; }
  uint64_t size() const { return size_; }  // when it was opened

  // Whole blocks from the offset on, until `bytes` are there; what is behind them in the last block
  // is undefined. Returns 0 or what errno says; ENODATA: the file ends before.
  // REQUIRES: `into` has `bytes`, rounded up to blocks.
  int read(uint64_t offset, std::byte* into, uint64_t bytes) const;

  static constexpr uint64_t in_blocks(uint64_t bytes) {
    return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  }

 private:
  DirectInput(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  bool reads_past_the_cache() const;
  void forget(uint64_t offset, uint64_t bytes) const;

  std::string path_;
  int fd_;
  bool is_direct_ = false;
  uint64_t size_ = 0;
  ReadPiece read_piece_;
};

}  // namespace wideep::weights
