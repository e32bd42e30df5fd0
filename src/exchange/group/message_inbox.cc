// SPDX-License-Identifier: Apache-2.0
#include "group/message_inbox.h"

#include <utility>

namespace wideep::transport {

void MessageInbox::put(RankEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  changed_.notify_one();
}

void MessageInbox::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_one();
}

std::optional<RankEvent> MessageInbox::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return closed_ || !events_.empty(); });
  if (events_.empty()) return std::nullopt;
  std::optional<RankEvent> event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace wideep::transport
