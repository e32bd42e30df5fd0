// SPDX-License-Identifier: Apache-2.0
//
// Memory that a process shares with those it forks, at the same address in each.
//
// It is anonymous (a memfd): nothing appears in /dev/shm, and it is gone with the last process that
// maps it, however that process ends. It starts zeroed.
//
// Thread safety: as plain memory; reserve() may run on several threads and processes at once.
#pragma once

#include <cstddef>
#include <functional>

#include "wideep/status.h"

namespace wideep::base {

// Where the pages come from.
enum class SharedPages {
  kNormal,
  kHugeIfReserved,  // those that the administrator has set aside (hugetlb), if there are enough
};

class SharedBytes {
 public:
  SharedBytes() = default;
  // Maps it: pages come with the first touch, or with reserve(). purpose: begins messages.
  // Errors (failed): the kernel refuses.
  static Result<SharedBytes> create(const char* purpose, size_t num_bytes,
                                    SharedPages pages = SharedPages::kNormal);
  ~SharedBytes() { release(); }
  SharedBytes(SharedBytes&& other) noexcept { *this = std::move(other); }
  SharedBytes& operator=(SharedBytes&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  bool huge() const { return huge_; }

  // The memory behind a descriptor that another process has made (fd() there) and sent. Takes the
  // descriptor. It may lie at another address here.
  static Result<SharedBytes> adopt(const char* purpose, int fd, size_t num_bytes, bool huge);
  int fd() const { return fd_; }

  // Takes the memory of [offset, offset + num_bytes) now: what is missing is an error here instead
  // of a bus error at the first touch. Errors (failed): with the bytes asked for.
  Status reserve(size_t offset, size_t num_bytes) const;

 private:
  bool map(size_t num_bytes, unsigned memfd_flags);
  bool map_file(int fd, size_t num_bytes);
  size_t mapped_bytes(size_t num_bytes) const;
  void release();

  const char* purpose_ = "";
  std::byte* data_ = nullptr;
  size_t size_ = 0;    // asked for
  size_t mapped_ = 0;  // in whole pages
  int fd_ = -1;
  bool huge_ = false;
};

// Where memory comes from that the ranks of a node share: made before they are forked
// (SharedBytes::create), or by one of them for all (transport::StartedRanks).
using MakeSharedBytes =
    std::function<Result<SharedBytes>(const char* purpose, size_t num_bytes, SharedPages)>;

}  // namespace wideep::base
