// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes forked from this one, on one machine, without MPI.
//
// The parent does no model work. It forks the ranks, forwards their messages, and supervises them:
//
//  - The parent gets SIGINT or SIGTERM: it asks the ranks to stop after the current iteration
//    (control().stop_requested). If some still run after a grace period (SIGINT: 0.7 s, SIGTERM:
//    10 s), it fails the group, and then kills them. The ranks themselves ignore both signals.
//  - A rank dies or fails: the waits of all other ranks return its error at once. Ranks that have
//    not ended 2 s later are killed.
//  - The parent dies, for whatever reason: the kernel kills the ranks (PR_SET_PDEATHSIG).
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

// Sends a rank's messages to the parent through a pipe. A background thread writes them, so that a
// slow parent (a paused output, for example) does not delay the rank and its peers.
//
// Thread safety: any thread may send.
class MessagePipe : public Messenger {
 public:
  explicit MessagePipe(int fd);
  ~MessagePipe() override;  // calls finish()
  MessagePipe(const MessagePipe&) = delete;
  MessagePipe& operator=(const MessagePipe&) = delete;

  // Queues the message and returns at once. Errors (failed): the parent has ended.
  Status send(std::string_view message) const override;
  Status send_with_next(std::string_view message) const override;

  // Waits until all messages are written, or the parent has ended.
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

// The main function of a rank.
using RankBody = std::function<Status(Endpoint&, const Messenger&)>;

// Forks the ranks; each runs `body`. REQUIRES: this process has only one thread; it may start more
// after this call. Errors (failed): the kernel refuses memory, a pipe or a process.
Result<std::unique_ptr<RunningRanks>> start_rank_processes(const GroupOptions& options,
                                                           const RankBody& body);

// Starts the ranks and waits for their end. Passes their messages to on_message(rank, message).
Status run_rank_processes(const GroupOptions& options, const RankBody& body,
                          const std::function<void(int, std::string_view)>& on_message);

}  // namespace wideep::transport
