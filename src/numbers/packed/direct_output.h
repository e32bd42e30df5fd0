// SPDX-License-Identifier: Apache-2.0
//
// A file that is written from front to back, past the page cache (O_DIRECT), by a thread of its own:
// whoever appends makes the next bytes meanwhile. Through the cache some disks are ten times slower,
// and what is written once would push out what others read. Where the file system refuses
// O_DIRECT, the file is written as others are.
//
//   WIDEEP_TRY_ASSIGN(auto output, DirectOutput::open(path, 0));
//   const uint64_t hash = output->append(bytes);
//   output->then([] { return 0; });            // once the bytes are on the disk
//   if (const int error = output->wait()) ...  // errno of the first that failed
//
// Thread safety: one thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/aligned_bytes.h"
#include "wideep/status.h"

namespace wideep::packed {

class DirectOutput {
 public:
  static constexpr uint64_t kBlockBytes = 4096;

  // Makes the file or opens it, and cuts it off at `begin`, from where on it is written.
  // Errors (failed): it cannot be opened or cut. REQUIRES: begin is a multiple of kBlockBytes.
  static Result<std::unique_ptr<DirectOutput>> open(const std::string& path, uint64_t begin);
  DirectOutput(const DirectOutput&) = delete;
  DirectOutput& operator=(const DirectOutput&) = delete;
  ~DirectOutput();  // all that was asked for is done first

  // Appends a copy, and returns its hash (base/content_hash.h). Waits where the disk is far behind.
  uint64_t append(std::span<const std::byte> bytes);
  // Zeros up to a multiple of kBlockBytes.
  void align();
  // Aligns, and has `call` called by the thread once all that was appended is on the disk. Returns
  // errno or 0, as write(2) does it.
  void then(std::function<int()> call);

  // What failed first, as errno; 0: nothing so far. Nothing is written after it.
  int error() const;
  // The same when all is done.
  int wait();

 private:
  static constexpr size_t kBufferBytes = size_t{8} << 20;
  static constexpr int kNumBuffers = 16;

  // Bytes to be written, or a call.
  struct Order {
    int buffer = -1;
    size_t bytes = 0;
    std::function<int()> call;
  };

  explicit DirectOutput(int fd, uint64_t begin);
  void hand_over();
  void push(Order order);
  void work();
  int carry_out(const Order& order);
  int write(const std::byte* bytes, size_t count);

  const int fd_;
  uint64_t written_;  // up to where; the thread's
  std::vector<base::AlignedBytes> buffers_;
  int filling_ = -1;  // buffer of the next bytes; −1: none yet
  size_t filled_ = 0;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Order> orders_;  // the first is being carried out
  std::vector<int> free_;
  int error_ = 0;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace wideep::packed
