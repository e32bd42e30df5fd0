// SPDX-License-Identifier: Apache-2.0
//
// A word remembers its last write and its last reads as (thread, time). An access races with one
// of these if its thread's vector clock does not know that time. One read is kept in the word
// itself, which is what nearly all words need; concurrent readers go to a list that the next write
// gives back. Words carry the number of their run, so that a new run clears nothing, and memory is
// mapped without being touched: a machine may have far more than its test uses.
#include "cuda/emulated/checked_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
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
size_t words_for(size_t num_bytes) { return (num_bytes + kWordBytes - 1) / kWordBytes; }

}  // namespace

// ---- where it is ----

std::vector<CheckedMemory::Arena>& CheckedMemory::free_arenas() {
  thread_local std::vector<Arena> arenas;
  return arenas;
}

// Of an arena that was used before, nothing is allocated and nothing is written.
CheckedMemory::Arena CheckedMemory::take_arena(size_t num_bytes) {
  std::vector<Arena>& arenas = free_arenas();
  if (!arenas.empty()) {
    const Arena last = arenas.back();
    arenas.pop_back();
    if (last.num_bytes >= num_bytes) return last;
    munmap(last.bytes, last.num_bytes);
    munmap(last.words, last.num_bytes / kWordBytes * sizeof(Word));
    munmap(last.is_written, last.num_bytes / kWordBytes);
    munmap(last.words_used, last.num_bytes / kAlignment);
  }
  Arena made;
  made.num_bytes = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  made.bytes = static_cast<std::byte*>(map(made.num_bytes));
  made.words = static_cast<Word*>(map(made.num_bytes / kWordBytes * sizeof(Word)));
  made.is_written = static_cast<uint8_t*>(map(made.num_bytes / kWordBytes));
  made.words_used = static_cast<uint8_t*>(map(made.num_bytes / kAlignment));
  return made;
}

CheckedMemory::CheckedMemory(size_t num_bytes) : arena_(take_arena(num_bytes)), readers_(1) {
  begin_run();
}

CheckedMemory::~CheckedMemory() {
  std::memset(arena_.is_written, 0, used_ / kWordBytes);
  std::memset(arena_.words_used, 0, used_ / kAlignment);
  free_arenas().push_back(arena_);
}

size_t CheckedMemory::index_of(const void* at) const {
  return static_cast<size_t>(static_cast<const std::byte*>(at) - arena_.bytes) / kWordBytes;
}

std::byte* CheckedMemory::allocate(size_t num_bytes) {
  const size_t end = used_ + words_for(num_bytes) * kWordBytes + kGapBytes + kAlignment - 1;
  WIDEEP_CHECK_LE(end, arena_.num_bytes);
  std::byte* const allocated = arena_.bytes + used_;
  used_ = end / kAlignment * kAlignment;
  set_allocated(allocated, num_bytes);
  return allocated;
}

void CheckedMemory::set_allocated(std::byte* at, size_t num_bytes) {
  constexpr size_t kWords = kAlignment / kWordBytes;
  uint8_t* used = arena_.words_used + static_cast<size_t>(at - arena_.bytes) / kAlignment;
  size_t words = words_for(num_bytes);
  std::memset(used, kWords, words / kWords);
  if (words % kWords != 0) used[words / kWords] = static_cast<uint8_t>(words % kWords);
}

void CheckedMemory::reallocate(std::byte* allocated, size_t num_bytes, size_t allocated_bytes) {
  uint8_t* used = arena_.words_used + static_cast<size_t>(allocated - arena_.bytes) / kAlignment;
  std::memset(used, 0, (allocated_bytes + kAlignment - 1) / kAlignment);
  set_allocated(allocated, num_bytes);
  forget(allocated, num_bytes);
}

// ---- the host ----

void CheckedMemory::set_written(void* at, size_t num_bytes) {
  const size_t begin = index_of(at);
  const size_t end = index_of(static_cast<std::byte*>(at) + num_bytes + kWordBytes - 1);
  constexpr size_t kWords = kAlignment / kWordBytes;
  WIDEEP_CHECK_LT((end - 1) % kWords, arena_.words_used[(end - 1) / kWords]);
  std::memset(arena_.is_written + begin, 1, end - begin);
}

void CheckedMemory::host_write(void* to, const void* from, size_t num_bytes) {
  if (num_bytes == 0) return;
  std::memcpy(to, from, num_bytes);
  set_written(to, num_bytes);
}

void CheckedMemory::host_clear(void* to, size_t num_bytes) {
  if (num_bytes == 0) return;
  std::memset(to, 0, num_bytes);
  set_written(to, num_bytes);
}

void CheckedMemory::forget(const void* at, size_t num_bytes) {
  const size_t begin = index_of(at);
  const size_t end = index_of(static_cast<const std::byte*>(at) + num_bytes + kWordBytes - 1);
  std::memset(arena_.is_written + begin, 0, end - begin);
  std::memset(arena_.bytes + begin * kWordBytes, 0xd5, (end - begin) * kWordBytes);
}

bool CheckedMemory::is_written(const void* at, size_t num_bytes) const {
  const uint8_t* begin = arena_.is_written + index_of(at);
  const uint8_t* end =
      arena_.is_written + index_of(static_cast<const std::byte*>(at) + num_bytes + kWordBytes - 1);
  return std::all_of(begin, end, [](uint8_t written) { return written != 0; });
}

// ---- threads ----

bool CheckedMemory::is_wrong(std::string what, size_t word) {
  wrong_ = fmt::format("{} at byte {} of the devices' memory", what, word * kWordBytes);
  return false;
}

bool CheckedMemory::access(const void* at, size_t num_bytes, Access kind,
                           const VectorClock& clock) {
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(at) - arena_.bytes);
  if (offset >= used_ || offset + num_bytes > used_) {
    wrong_ = fmt::format("{} bytes out of bounds, at {}", num_bytes, at);
    return false;
  }
  if (offset % num_bytes != 0) {
    return is_wrong(fmt::format("{} bytes, not aligned,", num_bytes), offset / kWordBytes);
  }
  // Aligned as it is, and at most kAlignment bytes, it is within one unit.
  const size_t begin = offset / kWordBytes;
  const size_t end = (offset + num_bytes + kWordBytes - 1) / kWordBytes;
  constexpr size_t kWords = kAlignment / kWordBytes;
  const size_t in_bounds = arena_.words_used[begin / kWords] + begin / kWords * kWords;
  if (end > in_bounds) return is_wrong("out of bounds", std::max(begin, in_bounds));
  for (size_t i = begin; i < end; ++i) {
    if (!check_word(i, kind, clock)) return false;
  }
  return true;
}

bool CheckedMemory::check_word(size_t index, Access kind, const VectorClock& clock) {
  Word& word = arena_.words[index];
  if (word.run != arena_.run) word = {.run = arena_.run};
  if (is_read(kind) && arena_.is_written[index] == 0) {
    return is_wrong("read of bytes that nobody has written,", index);
  }
  const bool both_atomic = is_atomic(kind) && word.atomic_write;
  if (word.write_time != 0 && !both_atomic && !clock.knows({word.write_thread, word.write_time})) {
    return is_wrong(fmt::format("race with the write of thread {}", word.write_thread), index);
  }
  if (is_read(kind)) {
    note_read(word, is_atomic(kind), clock);
    return true;
  }
  if (word.read_time != 0 && !check_readers(word, index, kind, clock)) return false;
  arena_.is_written[index] = 1;
  word.write_thread = static_cast<uint16_t>(clock.now().thread);
  word.write_time = clock.now().time;
  word.atomic_write = is_atomic(kind);
  word.read_time = 0;
  drop_readers(word);
  return true;
}

bool CheckedMemory::check_readers(const Word& word, size_t index, Access kind,
                                  const VectorClock& clock) {
  const auto races = [&](Moment read, bool atomic_read) {
    return !(is_atomic(kind) && atomic_read) && !clock.knows(read);
  };
  if (races({word.read_thread, word.read_time}, word.atomic_read)) {
    return is_wrong(fmt::format("race with the read of thread {}", word.read_thread), index);
  }
  if (word.more_readers == 0) return true;
  for (const Reader& reader : readers_[word.more_readers]) {
    if (!races(reader.moment, reader.is_atomic)) continue;
    return is_wrong(fmt::format("race with the read of thread {}", reader.moment.thread), index);
  }
  return true;
}

uint32_t CheckedMemory::take_list() {
  auto list = static_cast<uint32_t>(num_lists_);
  if (free_lists_.empty()) {
    if (++num_lists_ > readers_.size()) readers_.emplace_back();
  } else {
    list = free_lists_.back();
    free_lists_.pop_back();
  }
  readers_[list].clear();
  return list;
}

// An earlier read no longer matters if it happened before this one: then a write that races with it
// races with this one, too.
void CheckedMemory::note_read(Word& word, bool is_atomic, const VectorClock& clock) {
  const auto replaces = [&](Moment read, bool atomic_read) {
    return (atomic_read || !is_atomic) && clock.knows(read);
  };
  const Moment now = clock.now();
  if (word.read_time == 0 || replaces({word.read_thread, word.read_time}, word.atomic_read)) {
    word.read_thread = static_cast<uint16_t>(now.thread);
    word.read_time = now.time;
    word.atomic_read = is_atomic;
    return;
  }
  if (word.more_readers == 0) word.more_readers = take_list();
  std::vector<Reader>& readers = readers_[word.more_readers];
  for (Reader& reader : readers) {
    if (!replaces(reader.moment, reader.is_atomic)) continue;
    reader = {now, is_atomic};
    return;
  }
  readers.push_back({now, is_atomic});
}

void CheckedMemory::drop_readers(Word& word) {
  if (word.more_readers == 0) return;
  free_lists_.push_back(word.more_readers);
  word.more_readers = 0;
}

}  // namespace wideep::cuda
