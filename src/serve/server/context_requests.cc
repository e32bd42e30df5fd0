// SPDX-License-Identifier: Apache-2.0
#include "server/context_requests.h"

namespace wideep::server {

using store::RequestState;

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
  ++ended_[name];
  if (ended_order_.size() <= kMaxEnded) return;
  const auto oldest = ended_.find(ended_order_.front());
  if (--oldest->second == 0) ended_.erase(oldest);
  ended_order_.pop_front();
}

RequestState ContextRequests::state_of(std::string_view name) const {
  const std::string key(name);
  const std::lock_guard lock(mutex_);
  if (running_.contains(key)) return RequestState::kComputes;
  return ended_.contains(key) ? RequestState::kEnded : RequestState::kUnknown;
}

size_t ContextRequests::num_running() const {
  const std::lock_guard lock(mutex_);
  return running_.size();
}

}  // namespace wideep::server
