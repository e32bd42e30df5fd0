// SPDX-License-Identifier: Apache-2.0
//
// Runs calls one after the other on a thread of its own, for work that would delay the thread
// that adds them. Its niceness is raised, so that it takes at most about a tenth of a processor
// that a rank wants too. The thread begins with the first call: ranks are forked from a process
// without threads.
//
// Thread safety: add() and join() by one thread, that which made it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace wideep::base {

class WorkThread {
 public:
  WorkThread() = default;
  ~WorkThread() { join(); }
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  void add(std::function<void()> call);
  // Waits for the call that runs; those that wait are dropped, and so is what is added later.
  void join();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;  // guarded by mutex_
  bool ends_ = false;                        // guarded by mutex_
  std::thread thread_;                       // last: it uses the members above
};

}  // namespace wideep::base
