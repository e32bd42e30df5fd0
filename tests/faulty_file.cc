// SPDX-License-Identifier: Apache-2.0
//
// The kernel's protocol as linux/fuse.h has it: a request is a header and its arguments, in one
// read of /dev/fuse; a reply is a header and the result, in one write.
#include "faulty_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <utility>

namespace wideep::tests {
namespace {

// As many reads as wait at the same time.
constexpr int kThreads = 16;
constexpr size_t kBufferBytes = size_t{64} << 10;
constexpr uint32_t kMaxWrite = 4096;  // nobody writes

template <typename T>
T taken(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

fuse_attr_out attributes_of(int file) {
  struct stat info{};
  ::fstat(file, &info);
  fuse_attr_out out{};
  out.attr_valid = 3600;
  out.attr.ino = FUSE_ROOT_ID;
  out.attr.size = static_cast<uint64_t>(info.st_size);
  out.attr.blocks = static_cast<uint64_t>(info.st_blocks);
  out.attr.mode = info.st_mode;
  out.attr.nlink = 1;
  out.attr.uid = info.st_uid;
  out.attr.gid = info.st_gid;
  out.attr.blksize = 4096;
  return out;
}

}  // namespace

FaultyFile::FaultyFile(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  fuse_ = ::open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0 || fuse_ < 0) return;
  const std::string options = fmt::format(
      "fd={},rootmode=100644,user_id={},group_id={},allow_other", fuse_, ::getuid(), ::getgid());
  is_mounted_ =
      ::mount("faulty", path_.c_str(), "fuse", MS_NODEV | MS_NOSUID, options.c_str()) == 0;
  if (!is_mounted_) return;
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { serve(); });
}

FaultyFile::~FaultyFile() {
  if (is_mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  ends_ = true;
  for (std::thread& thread : threads_) thread.join();
  if (fuse_ >= 0) ::close(fuse_);
  if (file_ >= 0) ::close(file_);
}

void FaultyFile::serve() {
  std::vector<std::byte> buffer(kBufferBytes);
  while (!ends_) {
    pollfd waiting{.fd = fuse_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, 100) <= 0) continue;
    const ssize_t count = ::read(fuse_, buffer.data(), buffer.size());
    if (count < 0 && errno == ENODEV) return;  // nobody has it any more
    if (count > 0) answer(buffer.data(), static_cast<size_t>(count));
  }
}

void FaultyFile::answer(const std::byte* message, size_t bytes) {
  if (bytes < sizeof(fuse_in_header)) return;
  const auto header = taken<fuse_in_header>(message);
  const std::byte* const arguments = message + sizeof(header);
  switch (header.opcode) {
    case FUSE_INIT: {
      const auto in = taken<fuse_init_in>(arguments);
      fuse_init_out out{};
      out.major = FUSE_KERNEL_VERSION;
      out.minor = std::min<uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION);
      out.max_readahead = in.max_readahead;
      out.max_background = kThreads;
      out.congestion_threshold = kThreads;
      out.max_write = kMaxWrite;
      return reply(header.unique, 0, &out, sizeof(out));
    }
    case FUSE_GETATTR: {
      const fuse_attr_out out = attributes_of(file_);
      return reply(header.unique, 0, &out, sizeof(out));
    }
    case FUSE_OPEN: {
      const fuse_open_out out{};
      return reply(header.unique, 0, &out, sizeof(out));
    }
    case FUSE_READ: {
      const auto in = taken<fuse_read_in>(arguments);
      return read(header.unique, in.offset, in.size);
    }
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_DESTROY:
      return reply(header.unique, 0, nullptr, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return;
    default:
      return reply(header.unique, -ENOSYS, nullptr, 0);
  }
}

void FaultyFile::reply(uint64_t request, int error, const void* data, size_t bytes) const {
  fuse_out_header header{.len = static_cast<uint32_t>(sizeof(fuse_out_header) + bytes),
                         .error = error,
                         .unique = request};
  const iovec parts[] = {{&header, sizeof(header)}, {const_cast<void*>(data), bytes}};
  // The reader may have been killed meanwhile.
  [[maybe_unused]] const ssize_t written = ::writev(fuse_, parts, bytes > 0 ? 2 : 1);
}

void FaultyFile::read(uint64_t request, uint64_t offset, size_t bytes) {
  std::mt19937_64 rng(static_cast<uint64_t>(++reads_));
  const auto happens = [&](int64_t one_in) {
    return one_in > 0 && rng() % static_cast<uint64_t>(one_in) == 0;
  };
  if (delay_ms_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms_));
  if (happens(fail_one_in_)) {
    ++failed_;
    return reply(request, -EIO, nullptr, 0);
  }
  std::vector<std::byte> data(bytes);
  const ssize_t count = ::pread(file_, data.data(), bytes, static_cast<off_t>(offset));
  if (count < 0) return reply(request, -errno, nullptr, 0);
  if (count > 0 && happens(flip_one_in_)) {
    data[rng() % static_cast<uint64_t>(count)] ^= std::byte{1};
    ++flipped_;
  }
  reply(request, 0, data.data(), static_cast<size_t>(count));
}

}  // namespace wideep::tests
