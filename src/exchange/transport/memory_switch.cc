// SPDX-License-Identifier: Apache-2.0
#include "transport/memory_switch.h"

#include <atomic>
#include <deque>
#include <mutex>

namespace wideep::transport {

class MemorySwitch::Port : public Link {
 public:
  Port(MemorySwitch& owner, int rank) : switch_(owner), rank_(rank) {}

  void send(int to, Bytes message) override {
    Port& other = *switch_.ports_[static_cast<size_t>(to)];
    if (is_cut || other.is_cut) return;
    const std::lock_guard lock(other.mutex_);
    other.queue_.push_back({rank_, std::move(message)});
  }

  std::optional<Received> receive() override {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return {};
    std::optional<Received> first = std::move(queue_.front());
    queue_.pop_front();
    return first;
  }

  bool has_sent_all() override { return true; }

  std::atomic<bool> is_cut{false};

 private:
  MemorySwitch& switch_;
  int rank_;
  std::mutex mutex_;
  std::deque<Received> queue_;  // guarded by mutex_
};

MemorySwitch::MemorySwitch(int num_ranks) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    ports_.push_back(std::make_unique<Port>(*this, rank));
  }
}

MemorySwitch::~MemorySwitch() = default;

Link& MemorySwitch::link(int rank) { return *ports_[static_cast<size_t>(rank)]; }

void MemorySwitch::cut(int rank) { ports_[static_cast<size_t>(rank)]->is_cut = true; }

}  // namespace wideep::transport
