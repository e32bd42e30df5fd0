// SPDX-License-Identifier: Apache-2.0
//
// Zeroed memory that a process shares with the processes it forks, at the same address in each.
//
// It is anonymous (a memfd): it has no name in /dev/shm, and the kernel frees it when the last
// process that maps it ends, even by a crash.
//
// Thread safety: as plain memory; reserve() may run on several threads and processes at once.
#pragma once

#include <cstddef>
#include <functional>

#include "wideep/status.h"

namespace wideep::base {

enum class SharedPages {
  kNormal,
  kHugeIfReserved,  // the administrator's reserved huge pages (hugetlb) if there are enough
};

class SharedBytes {
 public:
  SharedBytes() = default;
  // Maps the memory. The kernel allocates pages at the first touch or in reserve(). purpose: the
  // first word of error messages; must outlive the object. Errors (failed): the kernel refuses.
  static Result<SharedBytes> create(const char* purpose, size_t num_bytes,
                                    SharedPages pages = SharedPages::kNormal);
  ~SharedBytes() { release(); }
  SharedBytes(SharedBytes&& other) noexcept { *this = std::move(other); }
  SharedBytes& operator=(SharedBytes&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool huge() const { return huge_; }

  // Maps the memory of another process's SharedBytes, whose fd() that process has sent here. Takes
  // ownership of the descriptor. The address may differ from the other process's.
  static Result<SharedBytes> adopt(const char* purpose, int fd, size_t num_bytes, bool huge);
  int fd() const { return fd_; }

  // Allocates the pages of [offset, offset + num_bytes) now, so that missing memory is an error
  // here instead of a SIGBUS at the first touch. Errors (failed) give the number of bytes.
  Status reserve(size_t offset, size_t num_bytes) const;

 private:
  bool map(size_t num_bytes, unsigned memfd_flags);
  bool map_file(int fd, size_t num_bytes);
  size_t mapped_bytes(size_t num_bytes) const;
  void release();

  const char* purpose_ = "";
  std::byte* data_ = nullptr;
  size_t size_ = 0;    // as requested
  size_t mapped_ = 0;  // in whole pages
  int fd_ = -1;
  bool huge_ = false;
};

// Creates memory that the ranks of a node share: before they are forked (SharedBytes::create), or
// by one rank that sends it to the others (transport::StartedRanks).
using MakeSharedBytes =
    std::function<Result<SharedBytes>(const char* purpose, size_t num_bytes, SharedPages)>;

}  // namespace wideep::base
