// SPDX-License-Identifier: Apache-2.0
//
// Events put by any thread and pulled by one, in order: who shows them may be slow (a paused
// output) without making anybody late.
//
// Thread safety: put() and close() from any thread; next() from one.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "transport/running_ranks.h"

namespace wideep::transport {

class MessageInbox {
 public:
  void put(RankEvent event);
  // Nothing is put any more.
  void close();
  // Waits for the next; nothing: closed, and everything has been pulled.
  std::optional<RankEvent> next();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RankEvent> events_;  // guarded by mutex_
  bool closed_ = false;           // guarded by mutex_
};

}  // namespace wideep::transport
