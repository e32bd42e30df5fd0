// SPDX-License-Identifier: Apache-2.0
//
// Messages handed to a thread of their own, in order: who shows them may be slow (a paused output)
// without making anybody late.
//
// Thread safety: put() from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace wideep::transport {

class MessageInbox {
 public:
  explicit MessageInbox(std::function<void(int from, std::string_view)> on_message);
  ~MessageInbox() { finish(); }
  MessageInbox(const MessageInbox&) = delete;
  MessageInbox& operator=(const MessageInbox&) = delete;

  void put(int from, std::string_view message);
  // Returns when everything has been handed over. Nothing may be put any more.
  void finish();

 private:
  void run();

  std::function<void(int, std::string_view)> on_message_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<int, std::string>> queued_;  // guarded by mutex_
  bool finishing_ = false;                           // guarded by mutex_
  std::thread thread_;                               // last: it uses everything above
};

}  // namespace wideep::transport
