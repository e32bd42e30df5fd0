// SPDX-License-Identifier: Apache-2.0
#include "server/context_requests.h"

#include <utility>

namespace wideep::server {

using store::RequestState;
using store::RequestStatus;
using Clock = std::chrono::steady_clock;

void ContextRequests::on_end(std::function<void()> changed) {
  const std::lock_guard lock(mutex_);
  changed_ = std::move(changed);
}

void ContextRequests::begin(const std::string& name) {
  const std::lock_guard lock(mutex_);
  ++running_[name];
}

void ContextRequests::end(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto running = running_.find(name);
  if (running == running_.end() || --running->second > 0) return;
  running_.erase(running);
  ended_order_.push_back(name);
  Ended& ended = ended_[name];
  ++ended.count;
  ended.last = Clock::now();
  if (changed_) changed_();
  if (ended_order_.size() <= kMaxEnded) return;
  const auto oldest = ended_.find(ended_order_.front());
  if (--oldest->second.count == 0) ended_.erase(oldest);
  ended_order_.pop_front();
}

RequestStatus ContextRequests::status_of(std::string_view name) const {
  const std::string key(name);
  const std::lock_guard lock(mutex_);
  if (running_.contains(key)) return {.state = RequestState::kComputes};
  const auto ended = ended_.find(key);
  if (ended == ended_.end()) return {};
  return {.state = RequestState::kEnded,
          .ended_before = std::chrono::duration_cast<std::chrono::milliseconds>(
              Clock::now() - ended->second.last)};
}

size_t ContextRequests::num_running() const {
  const std::lock_guard lock(mutex_);
  return running_.size();
}

}  // namespace wideep::server
