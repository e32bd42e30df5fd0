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
enum class Access : uint8_t { kRead, kWrite, kAtomicRead, kAtomicWrite };

class CheckedMemory {
 public:
  explicit CheckedMemory(size_t num_bytes);
  ~CheckedMemory();
  CheckedMemory(const CheckedMemory&) = delete;
  CheckedMemory& operator=(const CheckedMemory&) = delete;

  // Bytes that nobody has written, 256-byte aligned, with a gap behind them. Never freed.
  std::byte* allocate(size_t num_bytes);
  // From here on, of what was allocated with at least so many bytes, only the first num_bytes are
  // in bounds, and nobody has written them.
  void reallocate(std::byte* allocated, size_t num_bytes, size_t allocated_bytes);

  // By the host, while no thread runs. Bytes written by it count as initialised; forget: as not
  // written any more.
  void host_write(void* to, const void* from, size_t num_bytes);
  void host_clear(void* to, size_t num_bytes);  // zeros
  void forget(const void* at, size_t num_bytes);
  // Whether all of these bytes have been written.
  bool is_written(const void* at, size_t num_bytes) const;
  // From here on, all accesses so far happened before those of every thread.
  void begin_run() {
    ++arena_.run;
    num_lists_ = 1;
    free_lists_.clear();
  }

  // Checks and notes an access of the thread whose clock it is. False: it is wrong; wrong() says
  // how.
  bool access(const void* at, size_t num_bytes, Access kind, const VectorClock& clock);
  const std::string& wrong() const { return wrong_; }

 private:
  static constexpr size_t kGapBytes = 256;

  // The accesses of this run; those of an earlier one no longer matter.
  struct Word {
    uint32_t run = 0;
    uint32_t write_time = 0;
    uint32_t read_time = 0;
    uint32_t more_readers = 0;  // index in readers_, 0: none
    uint16_t write_thread = 0;
    uint16_t read_thread = 0;
    bool atomic_write = false;
    bool atomic_read = false;
  };
  // Mapped memory. Machines of one thread that follow each other use the same.
  struct Arena {
    size_t num_bytes = 0;
    std::byte* bytes = nullptr;
    Word* words = nullptr;          // by word
    uint8_t* is_written = nullptr;  // by word
    uint8_t* words_used = nullptr;  // by unit of kAlignment bytes: how many words are allocated
    uint32_t run = 0;               // of which the last accesses are
  };
  // Readers of a word beyond the first, if they are concurrent.
  struct Reader {
    Moment moment;
    bool is_atomic;
  };

  static std::vector<Arena>& free_arenas();
  static Arena take_arena(size_t num_bytes);
  size_t index_of(const void* at) const;
  void set_allocated(std::byte* at, size_t num_bytes);
  void set_written(void* at, size_t num_bytes);
  bool is_wrong(std::string what, size_t word);
  bool check_word(size_t index, Access kind, const VectorClock& clock);
  bool check_readers(const Word& word, size_t index, Access kind, const VectorClock& clock);
  uint32_t take_list();
  void note_read(Word& word, bool is_atomic, const VectorClock& clock);
  void drop_readers(Word& word);

  Arena arena_;
  size_t used_ = 0;
  std::string wrong_;
  std::vector<std::vector<Reader>> readers_;  // lists of readers; the first is none
  size_t num_lists_ = 1;                      // that this run has used
  std::vector<uint32_t> free_lists_;          // of them
};

}  // namespace wideep::cuda
