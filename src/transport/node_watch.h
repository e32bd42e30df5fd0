// SPDX-License-Identifier: Apache-2.0
//
// What a rank that a launcher has started must notice while it computes: that it is asked to stop,
// and that a rank of its node has died. A thread that sleeps until either happens.
//
// Thread safety: made and destroyed by one thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "transport/message_inbox.h"
#include "transport/node_sockets.h"
#include "transport/shared_memory.h"

namespace wideep::transport {

class NodeWatch {
 public:
  // inbox: the first stop signal goes there (GroupOptions::reports_stop_signals); null: ranks are
  // asked to stop. REQUIRES: SIGINT and SIGTERM are blocked in all threads (block_stop_signals).
  // All outlive this.
  NodeWatch(std::shared_ptr<SharedMemory> memory, const NodeSockets& sockets,
            MessageInbox* inbox = nullptr);
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

  // Whether a signal has asked the ranks to stop.
  bool was_interrupted() const { return interrupted_; }
  // As RunningRanks::end_within.
  void end_within(std::chrono::milliseconds grace);

 private:
  void run();
  void take_stop_signal(int signal);
  bool is_overdue();
  void look_at_peers() const;

  std::shared_ptr<SharedMemory> memory_;
  const NodeSockets& sockets_;
  MessageInbox* inbox_;  // of the next stop signal
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> fail_at_;  // guarded by mutex_
  std::atomic<bool> interrupted_ = false;
  int signals_ = -1;
  int end_ = -1;  // written to when there is nothing to watch any more
  std::thread thread_;
};

// Before any thread is started: they are then NodeWatch's to receive.
void block_stop_signals();

}  // namespace wideep::transport
