// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes forked from this one, on this machine, without MPI.
//
// The parent does no model work: it forks, passes on what the ranks say, and sees to their end.
//
//  - SIGINT or SIGTERM to the parent: ranks are asked to stop after the current iteration
//    (control().stop_requested). Those still running after a grace period (0.7 s; 10 s for SIGTERM)
//    are made to fail, and then killed. The ranks themselves ignore both signals.
//  - A rank dies or fails: the others' waits fail with its message at once. Any that lingers for
//    2 s is killed.
//  - The parent dies, however: the kernel kills the ranks (PR_SET_PDEATHSIG). Nothing is left
//    behind.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "transport/messenger.h"
#include "transport/rank_threads.h"
#include "transport/running_ranks.h"

namespace wideep::transport {

// A rank's way to tell the parent something: whole messages, in order. A thread of its own writes
// them, so that a parent that is slow (its output paused, say) never makes a rank late for its
// peers.
//
// Thread safety: any thread may send.
class MessagePipe : public Messenger {
 public:
  explicit MessagePipe(int fd);
  ~MessagePipe() override;  // as finish()
  MessagePipe(const MessagePipe&) = delete;
  MessagePipe& operator=(const MessagePipe&) = delete;

  // Queues the message; does not wait. Errors (failed): the parent no longer listens.
  Status send(std::string_view message) const override;
  Status send_with_next(std::string_view message) const override;

  // Waits until everything is written, or the parent no longer listens.
  void finish();

 private:
  Status queue(std::string_view message) const;
  void write_loop();
  bool write_whole(const std::string& bytes) const;

  int fd_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::string queued_;  // guarded by mutex_
  bool broken_ = false;         // guarded by mutex_
  bool finishing_ = false;      // guarded by mutex_
  std::thread writer_;          // last: it uses everything above
};

// What a rank does from its start to its end.
using RankBody = std::function<Status(Endpoint&, const Messenger&)>;

// Forks the ranks, each of which runs body. REQUIRES: the caller has started no other thread; it
// may do so once this has returned. Errors (failed): no memory, no processes.
Result<std::unique_ptr<RunningRanks>> start_rank_processes(const GroupOptions& options,
                                                           const RankBody& body);

// The same, and hears what the ranks say (on_message(rank, message)) until they have ended.
Status run_rank_processes(const GroupOptions& options, const RankBody& body,
                          const std::function<void(int, std::string_view)>& on_message);

}  // namespace wideep::transport
