// SPDX-License-Identifier: Apache-2.0
//
// A message on the pipe is its length in 4 bytes, then its bytes. Senders append to one string
// under a lock, and the writing thread takes all of it at once: many small messages become one
// write, and a sender never waits for the reader.
#include "group/message_pipe.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/try.h"

namespace wideep::transport {
namespace {

// A message on the pipe: its length in 4 bytes, then its bytes.
using Length = uint32_t;

}  // namespace

MessagePipe::MessagePipe(int fd) : fd_(fd), writer_([this] { write_loop(); }) {}

MessagePipe::~MessagePipe() { finish(); }

Status MessagePipe::send(std::string_view message) const {
  WIDEEP_TRY(queue(message));
  changed_.notify_one();
  return {};
}

Status MessagePipe::send_with_next(std::string_view message) const { return queue(message); }

Status MessagePipe::queue(std::string_view message) const {
  const Length length = static_cast<Length>(message.size());
  std::lock_guard lock(mutex_);
  if (broken_) return failed("the parent process has ended");
  queued_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  queued_ += message;
  return {};
}

void MessagePipe::finish() {
  {
    std::lock_guard lock(mutex_);
    finishing_ = true;
  }
  changed_.notify_one();
  if (writer_.joinable()) writer_.join();
}

void MessagePipe::write_loop() {
  for (;;) {
    std::string bytes;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return finishing_ || !queued_.empty(); });
      if (queued_.empty()) return;
      bytes.swap(queued_);
    }
    // Without the lock: write() blocks while the pipe is full, and senders must not.
    if (write_whole(bytes)) continue;
    std::lock_guard lock(mutex_);
    broken_ = true;
    return;
  }
}

// write() may write less than asked for, or be interrupted by a signal.
bool MessagePipe::write_whole(const std::string& bytes) const {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t written = ::write(fd_, bytes.data() + at, bytes.size() - at);
    if (written < 0 && errno == EINTR) continue;
    // A socket may have been made non-blocking for its other direction.
    if (written < 0 && errno == EAGAIN) {
      pollfd ready{fd_, POLLOUT, 0};
      ::poll(&ready, 1, -1);
      continue;
    }
    if (written <= 0) return false;
    at += static_cast<size_t>(written);
  }
  return true;
}

void MessageReader::close() {
  if (fd_ != kNone) ::close(fd_);
  fd_ = kNone;
  inbox_.clear();
}

void MessageReader::read(const std::function<void(std::string)>& on_message) {
  pollfd ready{fd_, POLLIN, 0};
  char buffer[64 * 1024];
  while (is_open() && ::poll(&ready, 1, 0) > 0) {
    // The pipe is blocking; poll has shown that there are bytes, or the end.
    const ssize_t bytes = ::read(fd_, buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return close();
    inbox_.append(buffer, static_cast<size_t>(bytes));
    take_messages(on_message);
  }
}

// A read may end within a message.
void MessageReader::take_messages(const std::function<void(std::string)>& on_message) {
  size_t at = 0;
  for (Length length = 0; inbox_.size() - at >= sizeof(length); at += sizeof(length) + length) {
    std::memcpy(&length, inbox_.data() + at, sizeof(length));
    if (inbox_.size() - at - sizeof(length) < length) break;
    on_message(inbox_.substr(at + sizeof(length), length));
  }
  inbox_.erase(0, at);
}

}  // namespace wideep::transport
