// SPDX-License-Identifier: Apache-2.0
#include "transport/shared_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/check.h"

namespace wideep::transport {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kNumChannels = static_cast<size_t>(Channel::kCount);

size_t round_to_page(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

Result<std::byte*> map_anonymous_file(size_t bytes) {
  const int fd = ::memfd_create("wideep", MFD_CLOEXEC);
  if (fd < 0) return failed(fmt::format("shared memory: memfd_create: {}", std::strerror(errno)));
  void* base = MAP_FAILED;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  const int error = errno;
  ::close(fd);  // the mapping keeps the memory
  if (base == MAP_FAILED) {
    return failed(
        fmt::format("shared memory: cannot map {} bytes: {}", bytes, std::strerror(error)));
  }
  return static_cast<std::byte*>(base);
}

}  // namespace

Result<std::shared_ptr<SharedMemory>> SharedMemory::create(int num_ranks, size_t segment_bytes) {
  WIDEEP_CHECK_GE(num_ranks, 1);
  std::shared_ptr<SharedMemory> memory(new SharedMemory());
  const size_t ranks = static_cast<size_t>(num_ranks);
  memory->num_ranks_ = num_ranks;
  memory->segment_bytes_ = round_to_page(segment_bytes);
  memory->words_offset_ = round_to_page(sizeof(ControlPage));
  memory->flags_offset_ = memory->words_offset_ + round_to_page(ranks * 2 * sizeof(uint64_t));
  memory->segments_offset_ =
      memory->flags_offset_ + round_to_page(kNumChannels * ranks * ranks * sizeof(Flag));
  if (__builtin_mul_overflow(ranks, memory->segment_bytes_, &memory->total_bytes_) ||
      __builtin_add_overflow(memory->total_bytes_, memory->segments_offset_,
                             &memory->total_bytes_)) {
    return failed(fmt::format("shared memory: cannot map {} segments of {} bytes", ranks,
                              memory->segment_bytes_));
  }
  auto base = map_anonymous_file(memory->total_bytes_);
  if (!base.ok()) return base.status();
  memory->base_ = *base;
  // Fresh pages are zero, which is the initial state of every atomic here.
  new (memory->base_) ControlPage();
  return memory;
}

SharedMemory::~SharedMemory() {
  if (base_ != nullptr) ::munmap(base_, total_bytes_);
}

std::byte* SharedMemory::segment(int rank) const {
  return base_ + segments_offset_ + static_cast<size_t>(rank) * segment_bytes_;
}

Flag& SharedMemory::flag(Channel channel, int from, int to) const {
  const size_t ranks = static_cast<size_t>(num_ranks_);
  // A reader's flags of one channel lie together.
  const size_t index = (static_cast<size_t>(channel) * ranks + static_cast<size_t>(to)) * ranks +
                       static_cast<size_t>(from);
  return reinterpret_cast<Flag*>(base_ + flags_offset_)[index];
}

std::atomic<uint64_t>& SharedMemory::agreed_word(int rank, uint32_t parity) const {
  return reinterpret_cast<std::atomic<uint64_t>*>(base_ + words_offset_)[2 * rank + (parity & 1)];
}

void SharedMemory::fail(const Status& status) const {
  Failure& failure = control().failure;
  if (failure.claimed.exchange(1) != 0) return;
  const size_t bytes = std::min(status.message().size(), Failure::kTextBytes - 1);
  std::memcpy(failure.text, status.message().data(), bytes);
  failure.text[bytes] = '\0';
  failure.code.store(1 + static_cast<uint32_t>(status.code()), std::memory_order_release);
}

Status SharedMemory::failure() const {
  const Failure& failure = control().failure;
  const uint32_t code = failure.code.load(std::memory_order_acquire);
  if (code == 0) return {};
  return {static_cast<StatusCode>(code - 1), failure.text};
}

}  // namespace wideep::transport
