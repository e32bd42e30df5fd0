// SPDX-License-Identifier: Apache-2.0
//
// A file that is read and written past the page cache (O_DIRECT), so that hundreds of gigabytes of
// cache do not drive out what else the machine keeps there. Where the file system refuses that, it
// is read and written as others are.
//
// Functions return 0 or what errno says, because callers act on it: a full disk is no lost file.
//
// Thread safety: a plain value; one thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace wideep::store {

// Memory that such files are read into: aligned to a block, and grown as needed.
class BlockMemory {
 public:
  // At least so many bytes; what was in it before is undefined. Throws std::bad_alloc.
  std::byte* at_least(uint64_t bytes);
  // Gives larger memory back.
  void keep_at_most(uint64_t bytes) {
    if (bytes_ <= bytes) return;
    memory_.reset();
    bytes_ = 0;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  uint64_t bytes_ = 0;
};

class DirectFile {
 public:
  DirectFile() = default;
  ~DirectFile() { close(); }
  DirectFile(DirectFile&& other) noexcept { *this = std::move(other); }
  DirectFile& operator=(DirectFile&& other) noexcept;

  // is_new: makes it, and fails where it is there. Else what cannot be written is opened to read.
  int open(const std::string& path, bool is_new);
  // What is there, and only to read it.
  int open_to_read(const std::string& path);
  void close();
  bool is_open() const { return fd_ >= 0; }
  bool is_writable() const { return is_writable_; }
  bool is_direct() const { return is_direct_; }
  // What addresses of memory must be multiples of, to be read into.
  uint64_t memory_alignment() const { return is_direct_ ? memory_alignment_ : 1; }

  // Offsets and lengths are multiples of kBlockBytes, addresses of memory_alignment(). ENODATA: the
  // file ends before.
  int read(uint64_t offset, std::span<const iovec> into);
  int read(uint64_t offset, std::span<std::byte> into);
  int write(uint64_t offset, std::span<const std::byte> bytes);

  // Of this object alone, until unlock(), close() or the death of the process. EAGAIN: another has
  // it. Needs a writable file.
  int lock();
  void unlock();

  // Makes the file so long, and its bytes zeros that are there: ENOSPC now, not later. Where the
  // file system cannot, it has a hole. EFBIG: the process may not have such files.
  int reserve(uint64_t bytes);
  // Gives the bytes back; they are read as zeros. EOPNOTSUPP: the file system cannot.
  int punch(uint64_t offset, uint64_t bytes);
  int truncate(uint64_t bytes);

  struct State {
    uint64_t size = 0;
    uint64_t allocated = 0;
    bool is_linked = false;  // has a name yet
  };
  int state(State& state) const;
  // Where the next bytes are that are no hole, from the offset on: at least `offset`, at most
  // `size`.
  uint64_t next_data(uint64_t offset, uint64_t size) const;

 private:
  int open_as(const std::string& path, int access, int flags);
  bool go_on_buffered();

  int fd_ = -1;
  bool is_writable_ = false;
  bool is_direct_ = false;
  uint64_t memory_alignment_ = 1;
};

}  // namespace wideep::store
