// SPDX-License-Identifier: Apache-2.0
//
// The memory of all emulated devices, with what is known of each of its words (4 bytes): whether it
// is allocated, whether it has been written, who wrote it last and who has read it since. Finds
// accesses out of bounds, reads of bytes that nobody has written, and races.
//
// Memory that the host writes is written before every thread; what happened in earlier runs of the
// machine happened before, too (begin_run).
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/emulated/clocks.h"

namespace wideep::cuda {

// Atomic accesses do not race with each other.
enum class Access { kRead, kWrite, kAtomicRead, kAtomicWrite };

class CheckedMemory {
 public:
  explicit CheckedMemory(size_t num_bytes);
  ~CheckedMemory();
  CheckedMemory(const CheckedMemory&) = delete;
  CheckedMemory& operator=(const CheckedMemory&) = delete;

  // Bytes that nobody has written, 256-byte aligned, with a gap behind them. Never freed.
  std::byte* allocate(size_t num_bytes);

  // By the host, while no thread runs. Bytes written by it count as initialised; forget: as not
  // written any more.
  void host_write(void* to, const void* from, size_t num_bytes);
  void forget(const void* at, size_t num_bytes);
  // Whether all of these bytes have been written.
  bool is_written(const void* at, size_t num_bytes) const;
  // From here on, all accesses so far happened before those of every thread.
  void begin_run() { ++run_; }

  // Checks and notes an access of one thread. Returns what is wrong with it, or nothing.
  // clock: the thread's own, which knows `now`.
  std::string access(const void* at, size_t num_bytes, Access kind, Moment now,
                     const VectorClock& clock);

 private:
  static constexpr size_t kGapBytes = 256;

  struct Word {
    uint32_t write_time;
    uint32_t read_time;
    uint32_t more_readers;  // index in readers_, 0: none
    uint16_t write_thread;
    uint16_t read_thread;
    uint16_t run;  // of the accesses above; those of an earlier run no longer matter
    uint8_t is_allocated;
    uint8_t is_written;
    uint8_t atomic_write;
    uint8_t atomic_read;
  };

  size_t index_of(const void* at) const;
  std::string check_word(Word& word, Access kind, Moment now, const VectorClock& clock);
  std::string check_readers(Word& word, Access kind, const VectorClock& clock);
  void note_read(Word& word, bool is_atomic, Moment now, const VectorClock& clock);
  std::string where(const void* at) const;

  size_t num_bytes_;
  size_t used_ = 0;
  std::byte* bytes_;
  Word* words_;
  uint16_t run_ = 1;
  // Readers of a word beyond the first, if they are concurrent.
  struct Reader {
    Moment moment;
    bool is_atomic;
  };
  std::vector<std::vector<Reader>> readers_;
  std::vector<uint32_t> free_readers_;
};

}  // namespace wideep::cuda
