// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a pipe with messages: whole, and in order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "group/messenger.h"

namespace wideep::transport {

// Sends a rank's messages to the parent through a pipe. A background thread writes them, so that a
// slow parent (a paused output, for example) does not delay the rank and its peers.
//
// Thread safety: any thread may send.
class MessagePipe : public Messenger {
 public:
  explicit MessagePipe(int fd);
  ~MessagePipe() override;  // calls finish()
  MessagePipe(const MessagePipe&) = delete;
  MessagePipe& operator=(const MessagePipe&) = delete;

  // Queues the message and returns at once. Errors (failed): the parent has ended.
  Status send(std::string_view message) const override;
  Status send_with_next(std::string_view message) const override;

  // Waits until all messages are written, or the parent has ended.
  void finish();

 private:
  Status queue(std::string_view message) const;
  void write_loop();
  bool write_whole(const std::string& bytes) const;

  int fd_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::string queued_;  // guarded by mutex_
  bool broken_ = false;         // guarded by mutex_
  bool finishing_ = false;      // guarded by mutex_
  std::thread writer_;          // last: it uses everything above
};

// Reads the messages of a pipe, whose end it owns.
//
// Thread safety: one thread.
class MessageReader {
 public:
  static constexpr int kNone = -1;
  MessageReader() = default;
  explicit MessageReader(int fd) : fd_(fd) {}
  ~MessageReader() { close(); }
  MessageReader(MessageReader&& other) noexcept { *this = std::move(other); }
  MessageReader& operator=(MessageReader&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(inbox_, other.inbox_);
    return *this;
  }

  int fd() const { return fd_; }  // kNone after the end was read
  bool is_open() const { return fd_ != kNone; }
  void close();
  // Passes on the messages that have arrived, without waiting. After the end of the pipe it closes
  // itself; the beginning of a message that never came whole is dropped.
  void read(const std::function<void(std::string)>& on_message);

 private:
  void take_messages(const std::function<void(std::string)>& on_message);

  int fd_ = kNone;
  std::string inbox_;  // the first bytes of a message whose rest has not arrived
};

}  // namespace wideep::transport
