// SPDX-License-Identifier: Apache-2.0
#include "store/use_counts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace wideep::store {
namespace {

// Names are hashes themselves; of their bytes the index uses others.
off_t place_of(const Name& name) {
  uint64_t bits = 0;
  std::memcpy(&bits, name.bytes.data() + sizeof(bits), sizeof(bits));
  return static_cast<off_t>(bits % UseCounts::kNumCounts);
}

}  // namespace

void UseCounts::open() {
  struct stat state = {};
  if (fd_ >= 0 && ::fstat(fd_, &state) == 0 && state.st_nlink > 0) return;
  close();
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  fd_ = ::open(path_.c_str(), kFlags);
  if (fd_ < 0 && errno == ENOENT) fd_ = ::open(path_.c_str(), kFlags | O_CREAT, 0600);
  const bool is_file = fd_ >= 0 && ::fstat(fd_, &state) == 0 && S_ISREG(state.st_mode);
  if (!is_file) close();
}

void UseCounts::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

// Behind the end of the file counts are 0.
uint8_t UseCounts::count(const Name& name) const {
  uint8_t count = 0;
  if (fd_ < 0 || ::pread(fd_, &count, 1, place_of(name)) != 1) return 0;
  return count;
}

uint8_t UseCounts::add(const Name& name) {
  if (fd_ < 0) return 0;
  const auto more = static_cast<uint8_t>(count(name) + 1);
  return ::pwrite(fd_, &more, 1, place_of(name)) == 1 ? more : count(name);
}

}  // namespace wideep::store
