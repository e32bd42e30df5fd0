// SPDX-License-Identifier: Apache-2.0
//
// For tests: a file on a disk that is slow or broken. A small FUSE file system of this process is
// mounted over the file itself, whatever program reads it; its bytes are those of the file, unless
// a fault is set.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace wideep::tests {

class FaultyFile {
 public:
  // Needs permission to mount file systems, and /dev/fuse: else is_mounted() is false.
  explicit FaultyFile(std::string path);
  ~FaultyFile();  // nobody reads it any more
  FaultyFile(const FaultyFile&) = delete;
  FaultyFile& operator=(const FaultyFile&) = delete;

  bool is_mounted() const { return is_mounted_; }
  // From now on, of each read; 0: none. The count of reads decides which ones.
  void delay(std::chrono::milliseconds time) { delay_ms_ = time.count(); }
  void fail_one_in(int reads) { fail_one_in_ = reads; }
  void flip_a_bit_of_one_in(int reads) { flip_one_in_ = reads; }

  int64_t num_reads() const { return reads_; }
  int64_t num_failed() const { return failed_; }
  int64_t num_flipped() const { return flipped_; }

 private:
  void serve();
  void answer(const std::byte* message, size_t bytes);
  void reply(uint64_t request, int error, const void* data, size_t bytes) const;
  void read(uint64_t request, uint64_t offset, size_t bytes);

  std::string path_;
  int file_ = -1, fuse_ = -1;
  bool is_mounted_ = false;
  std::atomic<bool> ends_ = false;
  std::atomic<int64_t> delay_ms_ = 0, fail_one_in_ = 0, flip_one_in_ = 0;
  std::atomic<int64_t> reads_ = 0, failed_ = 0, flipped_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace wideep::tests
