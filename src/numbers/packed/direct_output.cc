// SPDX-License-Identifier: Apache-2.0
#include "packed/direct_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/content_hash.h"

namespace wideep::packed {

Result<std::unique_ptr<DirectOutput>> DirectOutput::open(const std::string& path, uint64_t begin) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC;
  int fd = ::open(path.c_str(), kFlags | O_DIRECT, 0666);
  if (fd < 0 && errno == EINVAL) fd = ::open(path.c_str(), kFlags, 0666);
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(begin)) == 0) {
    return std::unique_ptr<DirectOutput>(new DirectOutput(fd, begin));
  }
  const Status status =
      failed(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  if (fd >= 0) ::close(fd);
  return status;
}

DirectOutput::DirectOutput(int fd, uint64_t begin) : fd_(fd), written_(begin) {
  for (int i = 0; i < kNumBuffers; ++i) {
    buffers_.emplace_back(kBufferBytes);  // large enough to begin at a page
    free_.push_back(i);
  }
  thread_ = std::thread([this] { work(); });
}

DirectOutput::~DirectOutput() {
  hand_over();
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
  ::close(fd_);
}

uint64_t DirectOutput::append(std::span<const std::byte> bytes) {
  base::HashedCopy copy;
  while (!bytes.empty()) {
    if (filling_ < 0) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !free_.empty(); });
      filling_ = free_.back();
      free_.pop_back();
    }
    const size_t now = std::min(bytes.size(), kBufferBytes - filled_);
    std::byte* const to = buffers_[static_cast<size_t>(filling_)].data() + filled_;
    // Short pieces: each is hashed while it is in the cache.
    for (size_t at = 0; at < now; at += base::HashedCopy::kPieceBytes) {
      copy.copy(bytes.data() + at, to + at, std::min(base::HashedCopy::kPieceBytes, now - at));
    }
    filled_ += now;
    bytes = bytes.subspan(now);
    if (filled_ == kBufferBytes) hand_over();
  }
  return copy.hash();
}

void DirectOutput::align() {
  const size_t end = (filled_ + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  if (end == filled_) return;
  std::memset(buffers_[static_cast<size_t>(filling_)].data() + filled_, 0, end - filled_);
  filled_ = end;
  if (filled_ == kBufferBytes) hand_over();
}

void DirectOutput::then(std::function<int()> call) {
  align();
  hand_over();
  push({.call = std::move(call)});
}

// What is not a whole block is left out: nobody has asked for it to be on the disk.
void DirectOutput::hand_over() {
  if (filling_ < 0) return;
  push({.buffer = std::exchange(filling_, -1),
        .bytes = std::exchange(filled_, 0) / kBlockBytes * kBlockBytes,
        .call = {}});
}

void DirectOutput::push(Order order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  changed_.notify_all();
}

int DirectOutput::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

int DirectOutput::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return orders_.empty(); });
  return error_;
}

// ---- the thread ----

void DirectOutput::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !orders_.empty() || is_over_; });
    if (orders_.empty()) return;
    const Order& order = orders_.front();  // others are added behind it meanwhile
    int error = error_;
    if (error == 0) {
      lock.unlock();
      error = carry_out(order);
      lock.lock();
    }
    error_ = error;
    if (order.buffer >= 0) free_.push_back(order.buffer);
    orders_.pop_front();
    changed_.notify_all();
  }
}

int DirectOutput::carry_out(const Order& order) {
  if (order.buffer >= 0) {
    return write(buffers_[static_cast<size_t>(order.buffer)].data(), order.bytes);
  }
  return ::fdatasync(fd_) != 0 ? errno : order.call();
}

int DirectOutput::write(const std::byte* bytes, size_t count) {
  while (count > 0) {
    const ssize_t done = ::pwrite(fd_, bytes, count, static_cast<off_t>(written_));
    if (done < 0 && errno == EINTR) continue;
    // Some file systems refuse O_DIRECT only here, or the rest of what was written in part.
    const int flags = ::fcntl(fd_, F_GETFL);
    if (done < 0 && errno == EINVAL && (flags & O_DIRECT) != 0 &&
        ::fcntl(fd_, F_SETFL, flags & ~O_DIRECT) == 0) {
      continue;
    }
    if (done <= 0) return done < 0 ? errno : EIO;
    bytes += done;
    count -= static_cast<size_t>(done);
    written_ += static_cast<uint64_t>(done);
  }
  return 0;
}

}  // namespace wideep::packed
