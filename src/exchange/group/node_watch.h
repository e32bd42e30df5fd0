// SPDX-License-Identifier: Apache-2.0
//
// A background thread of a rank that a launcher has started. It receives SIGINT and SIGTERM, and
// notices when another rank of the node dies, while the rank computes.
//
// Thread safety: create and destroy it on one thread; any thread may call the methods.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "group/message_inbox.h"
#include "group/node_sockets.h"
#include "transport/shared_memory.h"

namespace wideep::transport {

class NodeWatch {
 public:
  // inbox: receives the first stop signal as an event (GroupOptions::reports_stop_signals). If
  // null, the first signal sets control().stop_requested. REQUIRES: SIGINT and SIGTERM are blocked
  // in all threads (block_stop_signals). sockets and inbox outlive this.
  NodeWatch(std::shared_ptr<SharedMemory> memory, const NodeSockets& sockets,
            MessageInbox* inbox = nullptr);
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

  // Whether a signal has set control().stop_requested.
  bool was_interrupted() const { return interrupted_; }
  // See RunningRanks::end_within.
  void end_within(std::chrono::milliseconds grace);

 private:
  void run();
  void handle_stop_signal(int signal);
  bool take_overdue();
  void check_peers() const;

  std::shared_ptr<SharedMemory> memory_;
  const NodeSockets& sockets_;
  MessageInbox* inbox_;  // receives the next stop signal; null from then on
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> fail_at_;  // guarded by mutex_
  std::atomic<bool> interrupted_ = false;
  int signals_ = -1;  // signalfd
  int end_ = -1;      // eventfd; the destructor writes to it to end the thread
  std::thread thread_;
};

// Blocks SIGINT and SIGTERM, so that NodeWatch can receive them. Call it before any thread starts:
// threads inherit the mask.
void block_stop_signals();

}  // namespace wideep::transport
