// SPDX-License-Identifier: Apache-2.0
#include "weights/direct_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace wideep::weights {

Result<DirectInput> DirectInput::open(const std::string& path, ReadPiece read_piece) {
  // O_NONBLOCK: else a pipe that nobody writes would be waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return invalid_input(fmt::format("{}: {}", path, std::strerror(errno)));
  DirectInput input(path, fd);
  struct stat state = {};
  if (::fstat(fd, &state) != 0 || !S_ISREG(state.st_mode)) {
    return invalid_input(fmt::format("{}: not a regular file", path));
  }
  input.size_ = static_cast<uint64_t>(state.st_size);
  input.is_direct_ = input.reads_past_the_cache();
  input.read_piece_ = read_piece ? std::move(read_piece) : ::pread;
  return input;
}

DirectInput::DirectInput(DirectInput&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      is_direct_(other.is_direct_),
      size_(other.size_),
      read_piece_(std::move(other.read_piece_)) {}

DirectInput::~DirectInput() {
  if (fd_ >= 0) ::close(fd_);
}

// Some file systems refuse it when they are asked, some at the first byte, and some disks want
// larger blocks: memory and offset here are multiples of a block and of nothing larger.
bool DirectInput::reads_past_the_cache() const {
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) return false;
  alignas(2 * kBlockBytes) std::array<std::byte, 2 * kBlockBytes> memory;
  if (::pread(fd_, memory.data() + kBlockBytes, kBlockBytes, kBlockBytes) >= 0) return true;
  ::fcntl(fd_, F_SETFL, flags);
  return false;
}

int DirectInput::read(uint64_t offset, std::byte* into, uint64_t bytes) const {
  const uint64_t wanted = in_blocks(bytes);
  uint64_t done = 0;
  while (done < bytes) {
    const ssize_t count =
        read_piece_(fd_, into + done, wanted - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    uint64_t now = done + static_cast<uint64_t>(count);
    // Past the cache, the next read begins at a block; a part of one is the file's end.
    if (is_direct_ && now < bytes) now = now / kBlockBytes * kBlockBytes;
    if (now == done) return ENODATA;
    done = now;
  }
  if (!is_direct_) forget(offset, wanted);
  return 0;
}

void DirectInput::forget(uint64_t offset, uint64_t bytes) const {
  ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(in_blocks(bytes)),
                  POSIX_FADV_DONTNEED);
}

}  // namespace wideep::weights
