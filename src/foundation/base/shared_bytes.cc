// SPDX-License-Identifier: Apache-2.0
//
// A memfd instead of anonymous shared memory or a name in /dev/shm: it can be sent to processes
// that were not forked from here, and nothing is left behind by a crash. Huge pages are tried and
// not asked for: where the kernel has too few, normal ones serve. fallocate() takes pages before
// they are touched, because a missing page is an error there and a SIGBUS at the touch.
#include "base/shared_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace wideep::base {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Result<SharedBytes> SharedBytes::create(const char* purpose, size_t num_bytes, SharedPages pages) {
  SharedBytes bytes;
  bytes.purpose_ = purpose;
  // The kernel takes reserved huge pages at mmap and refuses when too few are free; then normal
  // pages are used.
  const bool mapped = pages == SharedPages::kHugeIfReserved && bytes.map(num_bytes, MFD_HUGETLB);
  if (!mapped && !bytes.map(num_bytes, 0)) {
    return failed(
        fmt::format("{}: cannot map {} bytes: {}", purpose, num_bytes, std::strerror(errno)));
  }
  return bytes;
}

Result<SharedBytes> SharedBytes::adopt(const char* purpose, int fd, size_t num_bytes, bool huge) {
  SharedBytes bytes;
  bytes.purpose_ = purpose;
  bytes.huge_ = huge;
  if (!bytes.map_file(fd, num_bytes)) {
    return failed(
        fmt::format("{}: cannot map {} bytes: {}", purpose, num_bytes, std::strerror(errno)));
  }
  return bytes;
}

bool SharedBytes::map(size_t num_bytes, unsigned memfd_flags) {
  huge_ = memfd_flags != 0;
  const int fd = ::memfd_create("wideep", MFD_CLOEXEC | memfd_flags);
  if (fd < 0) return false;
  if (::ftruncate(fd, static_cast<off_t>(mapped_bytes(num_bytes))) == 0) {
    return map_file(fd, num_bytes);
  }
  // The caller reports errno, which close() may overwrite.
  const int error = errno;
  ::close(fd);
  errno = error;
  return false;
}

size_t SharedBytes::mapped_bytes(size_t num_bytes) const {
  return round_up(std::max<size_t>(num_bytes, 1), huge_ ? kHugePageBytes : kPageBytes);
}

// Takes ownership of the descriptor: closes it on failure.
bool SharedBytes::map_file(int fd, size_t num_bytes) {
  const size_t rounded = mapped_bytes(num_bytes);
  void* mapped = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::close(fd);
    errno = error;
    return false;
  }
  data_ = static_cast<std::byte*>(mapped);
  size_ = num_bytes;
  mapped_ = rounded;
  fd_ = fd;
  return true;
}

Status SharedBytes::reserve(size_t offset, size_t num_bytes) const {
  if (num_bytes == 0) return {};
  // fallocate() works on whole pages, and must not extend the file.
  const size_t page = huge_ ? kHugePageBytes : kPageBytes;
  const size_t begin = offset / page * page;
  const size_t end = std::min(mapped_, round_up(offset + num_bytes, page));
  while (::fallocate(fd_, 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin)) != 0) {
    if (errno == EINTR) continue;
    return failed(fmt::format("{}: cannot get {} bytes of memory: {}", purpose_, num_bytes,
                              std::strerror(errno)));
  }
  return {};
}

SharedBytes& SharedBytes::operator=(SharedBytes&& other) noexcept {
  if (this == &other) return *this;
  release();
  purpose_ = other.purpose_;
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  mapped_ = std::exchange(other.mapped_, 0);
  fd_ = std::exchange(other.fd_, -1);
  huge_ = other.huge_;
  return *this;
}

void SharedBytes::release() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
  if (fd_ >= 0) ::close(fd_);
  data_ = nullptr;
  fd_ = -1;
}

}  // namespace wideep::base
