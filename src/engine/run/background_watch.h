// SPDX-License-Identifier: Apache-2.0
//
// Whether the background threads of online balancing run: the balancer of each stage, and the
// copying thread of each rank. Serving goes on without them, so nobody would notice.
//
// A thread is silent if its heartbeat has not changed for a while in which iterations ended. It may
// be stopped, hang, or get no processor time.
//
// Thread safety: one thread, of the process that pulls the ranks' events.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "run/online_parts.h"

namespace wideep::run {

// A background thread has fallen silent, or runs again.
struct BackgroundSilence {
  int stage = 0;
  int rank = -1;         // in the stage, of a copying thread; −1: the stage's balancer
  bool is_over = false;  // it runs again
  double seconds = 0.0;  // how long it has been silent
};

class BackgroundWatch {
 public:
  // stages: outlive the watch. limit_ns: after which a thread is silent.
  BackgroundWatch(std::span<const OnlineParts> stages, int64_t limit_ns)
      : stages_(stages), limit_ns_(limit_ns) {}

  // An iteration has ended. num_ranks: of each stage, now. At most one change, the others follow
  // with the next calls. Reads the heartbeats once in a quarter of the limit, at most once a
  // second.
  std::optional<BackgroundSilence> look(int64_t now_ns, int num_ranks);
  // The group has other members: its threads begin anew.
  void restart() { threads_.clear(); }

 private:
  struct Thread {
    int stage = 0;
    int rank = -1;
    int64_t heartbeat = 0;   // its last value
    int64_t changed_ns = 0;  // when it was seen to change
    bool is_silent = false;
  };
  void list_threads(int64_t now_ns, int num_ranks);
  int64_t heartbeat_of(const Thread& thread) const;
  std::optional<BackgroundSilence> look_at(Thread& thread, int64_t now_ns);

  std::span<const OnlineParts> stages_;
  int64_t limit_ns_;
  std::vector<Thread> threads_;
  size_t next_ = 0;        // the thread to look at next
  int64_t looked_ns_ = 0;  // when the last round began
};

}  // namespace wideep::run
