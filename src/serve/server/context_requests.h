// SPDX-License-Identifier: Apache-2.0
//
// The requests whose prompts this server computes for others, by name: what its page server says of
// them (store/page_server.h).
//
// A name that has ended is known for a while: kMaxEnded of them.
//
// Thread safety: any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "store/page_server.h"

namespace wideep::server {

class ContextRequests {
 public:
  static constexpr size_t kMaxEnded = 4096;

  // changed: is called when a name ends, by the thread that ends it; empty: nothing is.
  void on_end(std::function<void()> changed);
  // A name that runs already runs once more: it ends with the last.
  void begin(const std::string& name);
  void end(const std::string& name);
  store::RequestStatus status_of(std::string_view name) const;
  store::RequestState state_of(std::string_view name) const { return status_of(name).state; }
  size_t num_running() const;

 private:
  mutable std::mutex mutex_;
  std::function<void()> changed_;
  std::unordered_map<std::string, int> running_;  // how often
  std::deque<std::string> ended_order_;
  struct Ended {
    int count = 0;  // in ended_order_
    std::chrono::steady_clock::time_point last = {};
  };
  std::unordered_map<std::string, Ended> ended_;
};

// A name runs while one of these has it.
class RunningContext {
 public:
  RunningContext(ContextRequests& requests, std::string name)
      : requests_(requests), name_(std::move(name)) {
    requests_.begin(name_);
  }
  ~RunningContext() { requests_.end(name_); }
  RunningContext(const RunningContext&) = delete;
  RunningContext& operator=(const RunningContext&) = delete;

 private:
  ContextRequests& requests_;
  const std::string name_;
};

}  // namespace wideep::server
