// SPDX-License-Identifier: Apache-2.0
//
// Some file systems refuse O_DIRECT when the file is opened, some at the first byte, and tmpfs and
// others lack holes or reserved bytes: each function goes on with what there is.
#include "store/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include "store/segment_format.h"

namespace wideep::store {
namespace {

// Prompts are private: those of other users of the machine do not read them.
constexpr mode_t kMode = 0600;

uint64_t memory_alignment_of([[maybe_unused]] int fd) {
#ifdef STATX_DIOALIGN
  struct statx state = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &state) == 0 &&
      (state.stx_mask & STATX_DIOALIGN) != 0 && state.stx_dio_mem_align != 0) {
    return state.stx_dio_mem_align;
  }
#endif
  return kBlockBytes;
}

}  // namespace

// In huge pages, if the kernel has them: a request of 4 MiB then is 2 ranges of memory for a disk,
// not 1,024, and is read in two thirds of the time.
std::byte* BlockMemory::at_least(uint64_t bytes) {
  constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
  if (bytes > bytes_) {
    const uint64_t alignment = bytes < kHugePageBytes ? kBlockBytes : kHugePageBytes;
    const uint64_t rounded = (bytes + alignment - 1) / alignment * alignment;
    memory_.reset();  // first: both need not be there at once
    bytes_ = 0;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (!memory_) throw std::bad_alloc();
    if (alignment == kHugePageBytes) ::madvise(memory_.get(), rounded, MADV_HUGEPAGE);
    bytes_ = rounded;
  }
  return memory_.get();
}

void BlockMemory::Free::operator()(std::byte* memory) const { std::free(memory); }

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(is_writable_, other.is_writable_);
  std::swap(is_direct_, other.is_direct_);
  std::swap(memory_alignment_, other.memory_alignment_);
  return *this;
}

// flags: to make it.
int DirectFile::open_as(const std::string& path, int access, int flags) {
  close();
  for (const int direct : {O_DIRECT, 0}) {
    fd_ =
        ::open(path.c_str(), O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | access | flags | direct, kMode);
    if (fd_ >= 0) {
      is_writable_ = access == O_RDWR;
      is_direct_ = direct != 0;
      memory_alignment_ = is_direct_ ? memory_alignment_of(fd_) : 1;
      return 0;
    }
    if (errno != EINVAL) break;
    if (flags != 0) ::unlink(path.c_str());  // some make it before they refuse
    errno = EINVAL;
  }
  return errno;
}

int DirectFile::open(const std::string& path, bool is_new) {
  if (is_new) return open_as(path, O_RDWR, O_CREAT | O_EXCL);
  const int error = open_as(path, O_RDWR, 0);
  const bool is_forbidden = error == EACCES || error == EROFS || error == EPERM;
  return is_forbidden ? open_to_read(path) : error;
}

int DirectFile::open_to_read(const std::string& path) { return open_as(path, O_RDONLY, 0); }

void DirectFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  is_writable_ = false;
}

// Some file systems refuse direct access at the first byte only. Keeps the lock.
bool DirectFile::go_on_buffered() {
  const int flags = ::fcntl(fd_, F_GETFL);
  if (!is_direct_ || flags < 0 || ::fcntl(fd_, F_SETFL, flags & ~O_DIRECT) != 0) return false;
  is_direct_ = false;
  return true;
}

int DirectFile::read(uint64_t offset, std::span<const iovec> into) {
  std::vector<iovec> left(into.begin(), into.end());
  auto next = left.begin();
  while (next != left.end()) {
    const ssize_t count =
        ::preadv(fd_, &*next, static_cast<int>(left.end() - next), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EINVAL && go_on_buffered()) continue;
    if (count < 0) return errno;
    if (count == 0) return ENODATA;
    offset += static_cast<uint64_t>(count);
    auto bytes = static_cast<size_t>(count);
    while (next != left.end() && bytes >= next->iov_len) bytes -= (next++)->iov_len;
    if (next == left.end()) break;
    next->iov_base = static_cast<std::byte*>(next->iov_base) + bytes;
    next->iov_len -= bytes;
  }
  return 0;
}

int DirectFile::read(uint64_t offset, std::span<std::byte> into) {
  const iovec one = {into.data(), into.size()};
  return read(offset, std::span(&one, 1));
}

int DirectFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EINVAL && go_on_buffered()) continue;
    if (count < 0) return errno;
    if (count == 0) return EIO;
    offset += static_cast<uint64_t>(count);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return 0;
}

// A lock of the open file, not of the process: it also keeps two objects of one process apart, and
// other descriptors of the file may be closed.
int DirectFile::lock() {
  struct flock range = {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  if (::fcntl(fd_, F_OFD_SETLK, &range) == 0) return 0;
  return errno == EACCES ? EAGAIN : errno;
}

void DirectFile::unlock() {
  struct flock range = {};
  range.l_type = F_UNLCK;
  range.l_whence = SEEK_SET;
  ::fcntl(fd_, F_OFD_SETLK, &range);
}

// Beyond the limit the kernel would end the process with SIGXFSZ.
int DirectFile::reserve(uint64_t bytes) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    return EFBIG;
  }
  while (::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    return errno == EOPNOTSUPP ? truncate(bytes) : errno;
  }
  return 0;
}

int DirectFile::punch(uint64_t offset, uint64_t bytes) {
  while (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                     static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

int DirectFile::truncate(uint64_t bytes) {
  return ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

int DirectFile::state(State& state) const {
  struct stat found = {};
  if (::fstat(fd_, &found) != 0) return errno;
  if (!S_ISREG(found.st_mode)) return EINVAL;
  constexpr uint64_t kUnit = 512;  // whatever the file system's blocks are
  state = {.size = static_cast<uint64_t>(found.st_size),
           .allocated = static_cast<uint64_t>(found.st_blocks) * kUnit,
           .is_linked = found.st_nlink > 0};
  return 0;
}

uint64_t DirectFile::next_data(uint64_t offset, uint64_t size) const {
  const off_t found = ::lseek(fd_, static_cast<off_t>(offset), SEEK_DATA);
  if (found < 0) return errno == ENXIO ? size : offset;
  return std::clamp(static_cast<uint64_t>(found) / kBlockBytes * kBlockBytes, offset,
                    std::max(offset, size));
}

}  // namespace wideep::store
