// SPDX-License-Identifier: Apache-2.0
//
// Background threads have the lowest priority, so where every processor computes without a pause,
// as in a long prefill, a copy of 2 ms takes hundreds. This thread lends a rank's copying thread
// normal priority when it is late: `after` has passed since a plan was posted, and the rank's
// copies for it are not made. The loan ends when they are; copies for later plans wait as long
// before there is one again. So a copy is late by `after` at most, and the ranks share processors
// with the copies that are late only. Nothing waits for either thread.
//
// It sleeps until a plan is posted, and looks every few milliseconds until the copies are made.
//
// Thread safety: constructor and destructor on one thread; the other calls for the copying thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "online/update_board.h"

namespace wideep::online {

class PriorityLender {
 public:
  // counters: of the rank. board and counters must outlive this. processors: as for
  // become_background_thread().
  PriorityLender(const UpdateBoard& board, UpdaterCounters& counters,
                 std::chrono::milliseconds after, const std::vector<int>& processors);
  ~PriorityLender() { stop(); }
  // Ends the thread, and a loan. Before the copying thread ends, for its number may then be another
  // thread's.
  void stop();
  PriorityLender(const PriorityLender&) = delete;
  PriorityLender& operator=(const PriorityLender&) = delete;

  // ---- the copying thread ----

  void begin();  // first: this is the thread
  // All copies are made of plans that were posted when UpdateBoard::num_posts() was so.
  void done(uint32_t posts) { done_.store(posts, std::memory_order_release); }
  bool has_lent() const { return lent_.load(std::memory_order_relaxed); }

 private:
  void run(const std::vector<int>& processors);
  bool is_done(uint32_t posts) const;
  bool is_done_within(uint32_t posts, std::chrono::milliseconds time) const;
  void lend_until_done(uint32_t posts);

  const UpdateBoard& board_;
  UpdaterCounters& counters_;
  std::chrono::milliseconds after_;
  std::atomic<pid_t> borrower_{0};
  std::atomic<uint32_t> done_{0};
  std::atomic<bool> lent_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;  // last: it uses everything above
};

}  // namespace wideep::online
