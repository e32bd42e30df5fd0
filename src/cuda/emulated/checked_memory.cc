// SPDX-License-Identifier: Apache-2.0
#include "cuda/emulated/checked_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>

#include "base/check.h"

namespace wideep::cuda {
namespace {

constexpr size_t kWordBytes = 4;
constexpr size_t kAlignment = 256;

// Zeroed, and without memory until it is touched.
void* map(size_t num_bytes) {
  void* mapped = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  WIDEEP_CHECK(mapped != MAP_FAILED);
  return mapped;
}

bool is_read(Access kind) { return kind == Access::kRead || kind == Access::kAtomicRead; }
bool is_atomic(Access kind) { return kind == Access::kAtomicRead || kind == Access::kAtomicWrite; }

}  // namespace

CheckedMemory::CheckedMemory(size_t num_bytes)
    : num_bytes_((num_bytes + kAlignment - 1) / kAlignment * kAlignment),
      bytes_(static_cast<std::byte*>(map(num_bytes_))),
      words_(static_cast<Word*>(map(num_bytes_ / kWordBytes * sizeof(Word)))),
      readers_(1) {}

CheckedMemory::~CheckedMemory() {
  munmap(words_, num_bytes_ / kWordBytes * sizeof(Word));
  munmap(bytes_, num_bytes_);
}

std::byte* CheckedMemory::allocate(size_t num_bytes) {
  const size_t words = (num_bytes + kWordBytes - 1) / kWordBytes;
  const size_t end = (used_ + words * kWordBytes + kGapBytes + kAlignment - 1);
  WIDEEP_CHECK_LE(end, num_bytes_);
  std::byte* allocated = bytes_ + used_;
  for (size_t i = 0; i < words; ++i) words_[used_ / kWordBytes + i].is_allocated = 1;
  used_ = end / kAlignment * kAlignment;
  return allocated;
}

size_t CheckedMemory::index_of(const void* at) const {
  return static_cast<size_t>(static_cast<const std::byte*>(at) - bytes_) / kWordBytes;
}

void CheckedMemory::host_write(void* to, const void* from, size_t num_bytes) {
  if (num_bytes == 0) return;
  std::memcpy(to, from, num_bytes);
  const size_t end = index_of(static_cast<std::byte*>(to) + num_bytes + kWordBytes - 1);
  for (size_t i = index_of(to); i < end; ++i) {
    WIDEEP_CHECK(words_[i].is_allocated);
    words_[i].is_written = 1;
  }
}

void CheckedMemory::forget(const void* at, size_t num_bytes) {
  const size_t end = index_of(static_cast<const std::byte*>(at) + num_bytes + kWordBytes - 1);
  for (size_t i = index_of(at); i < end; ++i) {
    words_[i].is_written = 0;
    std::memset(bytes_ + i * kWordBytes, 0xd5, kWordBytes);
  }
}

bool CheckedMemory::is_written(const void* at, size_t num_bytes) const {
  const size_t end = index_of(static_cast<const std::byte*>(at) + num_bytes + kWordBytes - 1);
  for (size_t i = index_of(at); i < end; ++i) {
    if (!words_[i].is_written) return false;
  }
  return true;
}

std::string CheckedMemory::where(const void* at) const {
  return fmt::format("at byte {} of the devices' memory",
                     static_cast<const std::byte*>(at) - bytes_);
}

std::string CheckedMemory::access(const void* at, size_t num_bytes, Access kind, Moment now,
                                  const VectorClock& clock) {
  const auto* first = static_cast<const std::byte*>(at);
  if (first < bytes_ || first + num_bytes > bytes_ + num_bytes_) {
    return fmt::format("{} bytes out of bounds, at {}", num_bytes, at);
  }
  if ((first - bytes_) % static_cast<ptrdiff_t>(num_bytes) != 0) {
    return fmt::format("{} bytes, not aligned, {}", num_bytes, where(at));
  }
  const size_t end = index_of(first + num_bytes + kWordBytes - 1);
  for (size_t i = index_of(at); i < end; ++i) {
    std::string wrong = check_word(words_[i], kind, now, clock);
    if (!wrong.empty()) return fmt::format("{} {}", wrong, where(bytes_ + i * kWordBytes));
  }
  return {};
}

std::string CheckedMemory::check_word(Word& word, Access kind, Moment now,
                                      const VectorClock& clock) {
  if (!word.is_allocated) return "out of bounds";
  if (word.run != run_) {
    if (word.more_readers != 0) free_readers_.push_back(word.more_readers);
    word.write_time = word.read_time = 0;
    word.more_readers = 0;
    word.run = run_;
  }
  if (is_read(kind) && !word.is_written) return "read of bytes that nobody has written,";
  const bool both_atomic = is_atomic(kind) && word.atomic_write;
  if (word.write_time != 0 && !both_atomic && !clock.knows({word.write_thread, word.write_time})) {
    return fmt::format("race with the write of thread {}", word.write_thread);
  }
  if (is_read(kind)) {
    note_read(word, is_atomic(kind), now, clock);
    return {};
  }
  std::string wrong = check_readers(word, kind, clock);
  if (!wrong.empty()) return wrong;
  word.is_written = 1;
  word.write_thread = static_cast<uint16_t>(now.thread);
  word.write_time = now.time;
  word.atomic_write = is_atomic(kind);
  word.read_time = 0;
  if (word.more_readers != 0) free_readers_.push_back(word.more_readers);
  word.more_readers = 0;
  return {};
}

std::string CheckedMemory::check_readers(Word& word, Access kind, const VectorClock& clock) {
  const auto races = [&](Moment read, bool atomic_read) {
    return read.time != 0 && !(is_atomic(kind) && atomic_read) && !clock.knows(read);
  };
  if (races({word.read_thread, word.read_time}, word.atomic_read)) {
    return fmt::format("race with the read of thread {}", word.read_thread);
  }
  if (word.more_readers == 0) return {};
  for (const Reader& reader : readers_[word.more_readers]) {
    if (races(reader.moment, reader.is_atomic)) {
      return fmt::format("race with the read of thread {}", reader.moment.thread);
    }
  }
  return {};
}

void CheckedMemory::note_read(Word& word, bool is_atomic, Moment now, const VectorClock& clock) {
  const bool replaces = word.read_time == 0 || word.read_thread == now.thread ||
                        clock.knows({word.read_thread, word.read_time});
  if (replaces) {
    word.read_thread = static_cast<uint16_t>(now.thread);
    word.read_time = now.time;
    word.atomic_read = is_atomic;
    return;
  }
  if (word.more_readers == 0) {
    if (free_readers_.empty()) {
      free_readers_.push_back(static_cast<uint32_t>(readers_.size()));
      readers_.emplace_back();
    }
    word.more_readers = free_readers_.back();
    free_readers_.pop_back();
    readers_[word.more_readers].clear();
  }
  std::vector<Reader>& readers = readers_[word.more_readers];
  for (Reader& reader : readers) {
    if (reader.moment.thread == now.thread) {
      reader.moment.time = now.time;
      reader.is_atomic = reader.is_atomic && is_atomic;
      return;
    }
  }
  readers.push_back({now, is_atomic});
}

}  // namespace wideep::cuda
