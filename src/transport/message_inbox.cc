// SPDX-License-Identifier: Apache-2.0
#include "transport/message_inbox.h"

namespace wideep::transport {

MessageInbox::MessageInbox(std::function<void(int, std::string_view)> on_message)
    : on_message_(std::move(on_message)), thread_([this] { run(); }) {}

void MessageInbox::put(int from, std::string_view message) {
  {
    const std::lock_guard lock(mutex_);
    queued_.emplace_back(from, message);
  }
  changed_.notify_one();
}

void MessageInbox::finish() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void MessageInbox::run() {
  for (;;) {
    std::vector<std::pair<int, std::string>> messages;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return finishing_ || !queued_.empty(); });
      if (queued_.empty()) return;
      messages.swap(queued_);
    }
    for (const auto& [from, message] : messages) on_message_(from, message);
  }
}

}  // namespace wideep::transport
