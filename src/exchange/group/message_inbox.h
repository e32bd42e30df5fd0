// SPDX-License-Identifier: Apache-2.0
//
// An unbounded queue of events. put() never blocks, so a consumer that is slow (a paused output)
// does not delay the ranks.
//
// Thread safety: any thread may call put() and close(); one thread calls next().
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "group/running_ranks.h"

namespace wideep::transport {

class MessageInbox {
 public:
  void put(RankEvent event);
  // Ends the queue; no put() may follow.
  void close();
  // Waits for the next event. Empty once the queue is closed and all events have been taken.
  std::optional<RankEvent> next();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RankEvent> events_;  // guarded by mutex_
  bool closed_ = false;           // guarded by mutex_
};

}  // namespace wideep::transport
